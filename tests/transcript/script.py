"""Two shop conversations, English and Japanese: user texts, tool calls, answers."""

from dataclasses import dataclass
from typing import Any

CARD = "4111 1111 1111 1111"
"""A card number with valid check digit, which the user gives away in both conversations."""


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool by the scripted model."""

    name: str
    input: dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """The user's words, the tool calls of the model one after another, and its final answer."""

    user: str
    answer: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Script:
    """A conversation: the turns of the first visit, and those of the visit eight days later."""

    first_visit: tuple[Turn, ...]
    return_visit: tuple[Turn, ...]


def _search(query: str) -> ToolCall:
    return ToolCall("search_catalogue", {"query": query})


def _stock(asin: str) -> ToolCall:
    return ToolCall("check_stock", {"asin": asin})


def _order(order_id: str) -> ToolCall:
    return ToolCall("order_status", {"order_id": order_id})


_WISH = ToolCall("add_to_wish_list", {"asin": "B09P0001"})
_SHIPPING = ToolCall("shipping_rates", {"country": "JP"})

ENGLISH = Script(
    first_visit=(
        Turn(
            "Hi! I'm Alex. Please answer in English and keep it short.",
            "Hello Alex! How can I help?",
        ),
        Turn("I love horror manga, but I don't like gore.", "Noted: horror, without gore."),
        Turn(
            "Do you have Uzumaki?", "Yes: Uzumaki, deluxe edition, B07X1234.", (_search("Uzumaki"),)
        ),
        Turn("Is it in stock?", "Yes, 7 copies.", (_stock("B07X1234"),)),
        Turn("Great. My budget is 3000 yen.", "It costs 2,800 yen, so it fits."),
        Turn("What did Junji Ito write besides that?", "Tomie and Gyo.", (_search("Junji Ito"),)),
        Turn("Is Tomie more gory than Uzumaki?", "A little. Uzumaki is more about dread."),
        Turn(
            "OK, then Uzumaki it is. Actually, make it two copies.",
            "Two copies of Uzumaki: 5,600 yen.",
        ),
        Turn("Hmm, that is over my budget. One copy, please.", "One copy, 2,800 yen."),
        Turn(
            "Where is my last order, ORD-12345?",
            "I cannot reach the order system just now.",
            (_order("ORD-12345"),),
        ),
        Turn("Try again, please.", "Still not reachable, sorry.", (_order("ORD-12345"),)),
        Turn(
            "And now?", "It answers again: ORD-12345 was shipped yesterday.", (_order("ORD-12345"),)
        ),
        Turn("Thanks!", "You're welcome!"),
        Turn(
            "I also need a gift for my sister. She is 12 and likes shojo, and her budget is 1500"
            " yen.",
            "Natsume's Book of Friends, volume 1, 900 yen, could suit her.",
            (_search("shojo"),),
        ),
        Turn(
            "She already has volume 1. What about volume 2 of Natsume?",
            "Volume 2 is in stock.",
            (_stock("B0762002"),),
        ),
        Turn("Please gift wrap that one.", "Volume 2 will be wrapped."),
        Turn('She said "the cat is so funny" about it.', "Nyanko-sensei is everybody's favourite."),
        Turn("How much is shipping?", "I'll check and come back to you on shipping.", (_SHIPPING,)),
        Turn("What shipping companies do you use?", "Yamato and Japan Post."),
        Turn(
            f"My card is {CARD}, can you charge it?",
            "Please never send card numbers in the chat. The checkout page takes them.",
        ),
        Turn("Oh, sorry. My phone is 090-1234-5678 if anything comes up.", "Thank you."),
        Turn(
            "How many volumes does Natsume have in all?",
            "30 volumes so far.",
            (_search("Natsume"),),
        ),
        Turn(
            "Could you recommend something like Uzumaki, but newer?",
            "PTSD Radio, 2,400 yen.",
            (_search("new horror"),),
        ),
        Turn("Is PTSD Radio gory?", "No, it is quiet and unsettling."),
        Turn("Put volume 1 of PTSD Radio on my wish list.", "Done.", (_WISH,)),
        Turn("What was the order number again?", "ORD-12345."),
        Turn("When will it arrive?", "Tomorrow.", (_order("ORD-12345"),)),
        Turn("Actually I prefer paperback, not hardcover.", "Paperback it is."),
        Turn(
            "I still need an answer about shipping.", "Shipping to Japan is 350 yen.", (_SHIPPING,)
        ),
        Turn("Perfect. I'll come back for the rest. Bye!", "See you, Alex!"),
    ),
    return_visit=(
        Turn("Hi, it's me again.", "Welcome back, Alex!"),
        Turn("Do you have anything new for me?", "The second volume of PTSD Radio is out.",
            (_search("PTSD Radio"),)),
        Turn("How much is it?", "2,400 yen."),
        Turn("Did my sister's gift arrive?", "Let me look.", (_order("ORD-12399"),)),
        Turn("She loved it. What does she get next?", "Volume 3 of Natsume would be next.",
            (_stock("B0762003"),)),
        Turn("Recommend a cookbook with soups, too.",
            "We sell manga; Oishinbo has soups in volume 1.", (_search("soup"),)),
        Turn("Ha, fine. What did I want to spend on myself?", "3,000 yen."),
        Turn("I've changed my mind about horror, I'm into mystery now.", "Mystery, noted.",
            (_search("mystery"),)),
        Turn("Which of these is the shortest?", "The one in a single volume."),
        Turn("I'll take it. Thanks, bye!", "Thank you, bye!"),
    ),
)  # fmt: skip

JAPANESE = Script(
    first_visit=(
        Turn("こんにちは。佐藤です。日本語で短く答えてください。",
            "佐藤さん、こんにちは。ご用件をどうぞ。"),
        Turn("ホラー漫画が好きです。でもグロいのは苦手です。",
            "承知しました。グロくないホラーですね。"),
        Turn("「うずまき」はありますか？", "はい、「うずまき」完全版、B07X1234です。",
            (_search("うずまき"),)),
        Turn("在庫はありますか？", "7冊あります。", (_stock("B07X1234"),)),
        Turn("予算は3000円です。", "2,800円ですので、予算内です。"),
        Turn("伊藤潤二の他の作品は？", "「富江」と「ギョ」があります。", (_search("伊藤潤二"),)),
        Turn("「富江」は「うずまき」よりグロいですか？",
            "少しグロいです。「うずまき」は不気味さが中心です。"),
        Turn("では「うずまき」にします。やっぱり2冊ください。", "「うずまき」2冊で5,600円です。"),
        Turn("予算を超えますね。1冊でお願いします。", "1冊、2,800円です。"),
        Turn("前の注文ORD-12345はどうなっていますか？", "ただいま注文システムに接続できません。",
            (_order("ORD-12345"),)),
        Turn("もう一度お願いします。", "申し訳ありません、まだ接続できません。",
            (_order("ORD-12345"),)),
        Turn("今度はどうですか？", "接続できました。昨日発送済みです。", (_order("ORD-12345"),)),
        Turn("ありがとう！", "どういたしまして。"),
        Turn("妹へのプレゼントも探しています。12歳で少女漫画が好きです。妹の予算は1500円です。",
            "「夏目友人帳」1巻、900円はいかがでしょう。", (_search("少女漫画"),)),
        Turn("1巻は持っています。「夏目友人帳」の2巻は？", "2巻の在庫があります。",
            (_stock("B0762002"),)),
        Turn("それをギフト包装してください。", "2巻をギフト包装します。"),
        Turn("妹は「猫がおもしろい」と言っていました。", "ニャンコ先生は人気です。"),
        Turn("送料はいくらですか？", "確認しますので、少々お待ちください。", (_SHIPPING,)),
        Turn("配送会社はどこですか？", "ヤマトと日本郵便です。"),
        Turn(f"カード番号は{CARD}です。これで払えますか？",
            "カード番号はチャットに送らないでください。"),
        Turn("すみません。電話は090-1234-5678です。", "ありがとうございます。"),
        Turn("夏目友人帳は全部で何巻ですか？", "全30巻です。", (_search("夏目友人帳"),)),
        Turn("「うずまき」に似た新しい作品はありますか？", "「PTSDラジオ」、2,400円です。",
            (_search("新しいホラー"),)),
        Turn("それはグロいですか？", "いいえ、静かで不気味です。"),
        Turn("PTSDラジオの1巻をほしい物リストに入れて。", "入れました。", (_WISH,)),
        Turn("注文番号は何でしたっけ？", "ORD-12345です。"),
        Turn("いつ届きますか？", "明日です。", (_order("ORD-12345"),)),
        Turn("ハードカバーではなくペーパーバックがいいです。", "ペーパーバックにします。"),
        Turn("送料の件、まだ返事をもらっていません。", "日本国内は350円です。", (_SHIPPING,)),
        Turn("完璧です。また来ます。さようなら。", "またお待ちしております、佐藤さん。"),
    ),
    return_visit=(
        Turn("こんにちは、また来ました。", "佐藤さん、おかえりなさい。"),
        Turn("何か新しいものはありますか？", "「PTSDラジオ」の2巻が出ました。",
            (_search("PTSDラジオ"),)),
        Turn("いくらですか？", "2,400円です。"),
        Turn("妹のプレゼントは届きましたか？", "お調べします。", (_order("ORD-12399"),)),
        Turn("妹は喜んでいました。次は何がいいですか？", "「夏目友人帳」3巻です。",
            (_stock("B0762003"),)),
        Turn("スープの料理本もおすすめしてください。", "漫画では「美味しんぼ」1巻があります。",
            (_search("スープ"),)),
        Turn("自分用の予算はいくらでしたっけ？", "3,000円です。"),
        Turn("ホラーはもういいです。今はミステリーが好きです。", "ミステリーですね。",
            (_search("ミステリー"),)),
        Turn("一番短いのはどれですか？", "全1巻の作品です。"),
        Turn("それにします。ありがとう、さようなら。", "ありがとうございました。"),
    ),
)  # fmt: skip
SCRIPTS = {"en": ENGLISH, "ja": JAPANESE}
