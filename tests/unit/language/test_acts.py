"""Dialogue acts in English and Japanese."""

from __future__ import annotations

import pytest

from strands_manga_memory.language import DialogueAct, dialogue_act

LINES = [
    ("user", "I prefer horror manga to romance.", "preference"),
    ("user", "I'm a big fan of Urasawa.", "preference"),
    ("user", "My favourite series is the one about the tower.", "preference"),
    ("user", "I really don't like colour editions.", "preference"),
    ("user", "Please never show me spoilers for later volumes.", "instruction"),
    ("user", "I only buy paperback.", "preference"),
    ("user", "I have a strong preference for hardcover.", "preference"),
    ("user", "My preference is the old translation.", "preference"),
    ("user", "I'd rather read it in Japanese.", "preference"),
    ("user", "I can't stand cliffhangers.", "preference"),
    ("user", "Hi, I love slice of life stories!", "preference"),
    ("user", "ホラー漫画が好きです。", "preference"),
    ("user", "紙の本のほうがいいです。", "preference"),
    ("user", "恋愛ものは苦手なんです。", "preference"),
    ("user", "いつも単行本を買います。", "preference"),
    ("user", "予算は5000円です。", "preference"),
    ("user", "ネタバレはしないでください。", "instruction"),
    ("user", "No, I meant volume 21.", "correction"),
    ("user", "Actually, make that two copies.", "correction"),
    ("user", "That's wrong, my order was from May.", "correction"),
    ("user", "Please change the address to my office instead.", "correction"),
    ("user", "Wait, not that edition.", "correction"),
    ("user", "いや、21巻です。", "correction"),
    ("user", "違います。東京ではなくて大阪です。", "correction"),
    ("user", "やっぱり文庫版にします。", "correction"),
    ("user", "届け先を会社に変更してください。", "correction"),
    ("assistant", "I recommend starting with volume 1.", "recommendation"),
    ("assistant", "You might also enjoy Monster.", "recommendation"),
    ("assistant", "How about the deluxe edition?", "recommendation"),
    ("assistant", "Have you read Pluto?", "recommendation"),
    ("assistant", "「プルートウ」がおすすめです。", "recommendation"),
    ("assistant", "こちらの限定版はいかがでしょうか。", "recommendation"),
    ("user", "ok", "acknowledgement"),
    ("user", "Thanks a lot!", "acknowledgement"),
    ("user", "Sounds good, thank you.", "acknowledgement"),
    ("user", "No thanks, that's all.", "acknowledgement"),
    ("assistant", "You're welcome!", "acknowledgement"),
    ("assistant", "Understood.", "acknowledgement"),
    ("user", "ありがとうございます！", "acknowledgement"),
    ("user", "はい、お願いします。", "acknowledgement"),
    ("user", "お届けありがとうございます", "acknowledgement"),
    ("user", "丁寧に教えてくださり、ありがとうございました。", "acknowledgement"),
    ("user", "質問は以上です。", "acknowledgement"),
    ("user", "解決しました。ありがとうございます。", "acknowledgement"),
    ("user", "届け先は横浜です。ありがとう。", "constraint"),
    ("user", "装丁にこだわりがあります。", "preference"),
    ("user", "装丁にはこだわりません。", "unmatched"),
    ("assistant", "かしこまりました。", "acknowledgement"),
    ("user", "Hello!", "greeting"),
    ("user", "good morning", "greeting"),
    ("assistant", "Hi there! How can I help you today?", "greeting"),
    ("user", "こんにちは", "greeting"),
    ("assistant", "いらっしゃいませ。何かお探しですか。", "greeting"),
    ("user", "Bye!", "farewell"),
    ("user", "See you again.", "farewell"),
    ("user", "I would like it again, for a friend.", "unmatched"),
    ("assistant", "You're welcome. Have a great day!", "farewell"),
    ("user", "さようなら", "farewell"),
    ("user", "では、また来週。", "farewell"),
    ("user", "明日でお願いします。", "constraint"),
    ("user", "はい、土曜でお願いします。", "constraint"),
    ("assistant", "またのご利用をお待ちしております。", "farewell"),
    ("user", "Hi, do you have volume 12?", "unmatched"),
    ("user", "I'd like to order volume 3.", "unmatched"),
    ("user", "Can you recommend something?", "unmatched"),
    ("user", "I don't have a preference.", "unmatched"),
    ("user", "No preference, as you like.", "unmatched"),
    ("user", "Would you like me to prefer it?", "unmatched"),
    ("user", "こんにちは、21巻はありますか？", "unmatched"),
    ("user", "在庫はありますか。", "unmatched"),
    ("assistant", "Order ORD-12345 was shipped on Monday.", "unmatched"),
    ("assistant", "I prefer not to say.", "unmatched"),
    ("user", "", "unmatched"),
    ("user", "?!", "unmatched"),
]


ADDRESSES = [
    "配達先は東京都千代田区丸の内1-1-1です。",
    "お届け先は、大阪市北区梅田２丁目４−９でお願いします。",
    "届け先：京都府京都市中京区寺町通508",
    "住所は神奈川県横浜市西区みなとみらい2-3-5です",
    "送り先は実家にしてください。",
    "自宅に送ってください。",
    "会社宛に届けてもらいたいです。",
    "〒100-0005 東京都千代田区丸の内1丁目 田中花子",
    "請求先の住所は会社と同じです",
    "東京都港区芝公園4-2-8まで配達してください",
    "受取人は佐藤一郎です",
    "北海道札幌市中央区大通西１２丁目です。",
    "コンビニに届けてほしいです",
    "配送先が福岡県福岡市博多区博多駅前3-2-1になります。",
    "あ、配達先は妹の家で。",
    "郵便番号は150-0001です",
    "千葉県船橋市本町6-4-15 に送ってください",
    "お届け先の住所は埼玉県さいたま市大宮区桜木町1-7-5",
    "プレゼントなので祖母の家に届けてください",
    "新しい住所は長野県松本市丸の内3-7です",
    "宛名は「山田書店」でお願いします",
    "配達先を東京都新宿区西新宿2-8-1でお願いします",
    "受け取り場所はセブンイレブン渋谷店で",
    "配達先: 大阪府堺市堺区南瓦町3番1号",
    "送付先は以下の通りです。沖縄県那覇市泉崎1-2-2",
    "配送先が福岡県福岡市博多区博多駅前3-2-1になります。",
    "駅のロッカーに配達してください",
    "連絡先は090-1234-5678です",
]

NO_ADDRESSES = [
    "配達先はどこですか？",
    "お届け先は変更できますか",
    "配達先はまだ決めていません。",
    "住所は後で連絡します",
    "東京都千代田区にお店はありますか？",
    "すぐに送ってください。",
    "メールを送ってください。",
    "先にこの本を読みました",
    "お届け先はどうなっていますか？",
    "会社まで配送できますか？",
    "送り先を教えてください",
    "配達先は必要ですか？",
    "優先順位は何ですか",
    "自宅に届けることはできますか？",
    "お店は東京駅の近くですか？",
    "住所は変わっていません",
    "進撃の巨人の舞台はどこですか",
    "海外に送ってもらえますか？",
    "連絡先は分かりますか",
    "住所はどこに入力すればいいですか",
    "配達先が見つかりません",
    "郵便番号が読めません",
    "発送はいつですか？",
    "東京の書店に詳しいですか",
    "届け先一覧を見せてください",
    "この本は京都が舞台ですか？",
    "配達先ってどうやって登録するの？",
    "配送先について質問です",
    "昨日届きました",
    "東京都の天気を教えて",
    "家に帰ったら読みます",
    "送料は300円と書いてありました",
    "主人公は学校に通っています",
    "店に行きます",
]


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_in_japanese_is_a_constraint(text: str) -> None:
    assert dialogue_act(text, "user") is DialogueAct.CONSTRAINT
    assert dialogue_act(text, "assistant") is not DialogueAct.CONSTRAINT


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_questions_about_addresses_and_other_places_are_none(text: str) -> None:
    assert dialogue_act(text, "user") is DialogueAct.UNMATCHED


@pytest.mark.parametrize(("role", "text", "act"), LINES)
def test_says_what_a_message_does(role: str, text: str, act: str) -> None:
    assert dialogue_act(text, role) == DialogueAct(act)


def test_case_typographic_apostrophes_and_surrounding_space_do_not_matter() -> None:
    assert dialogue_act("  I CAN\u2019T STAND CLIFFHANGERS  ", "user") == DialogueAct.PREFERENCE


def test_of_a_long_text_the_beginning_and_the_end_are_read() -> None:
    filler = "The parcel was left at the door and nobody was home. " * 40
    assert dialogue_act(f"I prefer hardcovers. {filler}", "user") == DialogueAct.PREFERENCE
    assert dialogue_act(f"{filler} I prefer hardcovers.", "user") == DialogueAct.PREFERENCE
    assert dialogue_act(f"{filler} I prefer hardcovers. {filler}", "user") == DialogueAct.UNMATCHED


@pytest.mark.parametrize("text", ["解決しました。", "すっきり解決いたしました。"])
def test_that_something_is_solved_is_a_courtesy(text: str) -> None:
    assert dialogue_act(text, "user") == DialogueAct.ACKNOWLEDGEMENT


@pytest.mark.parametrize("text", ["Hi, it's me again.", "It's me again.", "こんにちは、また来ました。"])
def test_who_comes_back_greets(text: str) -> None:
    """The words "again" and また end a message that says goodbye, but not one that says hello."""
    assert dialogue_act(text, "user") is DialogueAct.GREETING
