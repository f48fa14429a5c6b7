"""Dialogue of forty turns between a reader and MangaAssist, and its scripted answers."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
Answer = str | list[dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """Tool call of the assistant."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """Message of the reader, answer, and tool calls (a tuple of parallel calls per step)."""

    user: str
    answer: str
    steps: tuple[tuple[Call, ...], ...] = ()


def _call(tool: str, **arguments: Any) -> Call:
    return Call(tool, arguments)


TURNS: tuple[Turn, ...] = (
    Turn(
        "こんにちは。葵といいます。毎日の通勤電車が片道五十分あるので、"
        "長く読める新しいシリーズを一緒に探してもらえますか？",
        "葵さん、はじめまして。MangaAssistです。片道五十分なら、一巻をゆっくり読み切れる長さですね。"
        "お好みの雰囲気、苦手な表現、一回のご注文の予算を教えていただければ、そこから絞り込みます。"
        "英語版と日本語版のどちらでお読みになるかも、あわせて教えてください。",
    ),
    Turn(
        "静かなミステリーとファンタジーが好きです。血が出る場面や残酷な描写は苦手なので、"
        "絶対に避けたいです。"
        "絵は水彩のような淡いタッチだとうれしいです。",
        "承知しました。お好みは「静かなミステリー」と「ファンタジー」、淡いタッチの絵。"
        "流血や残酷な描写のある作品は"
        "ご案内から外します。この条件はこのあともずっと覚えておきますので、"
        "作品を選ぶたびに言い直していただく必要はありません。",
    ),
    Turn(
        "ではまず、ミステリーで評価の高いものを教えてください。",
        "評価の高い順に五作品ありました。いちばんのおすすめは『硝子町の夜回り探偵』（全三十六巻、"
        "評価4.8）です。"
        "血の流れない事件だけを扱うので、葵さんの条件にぴったりです。"
        "次点は『回送列車に乗って』（評価4.7）、"
        "『さかさま図書館の司書見習い』（評価4.6）です。どれも流血表現はありません。"
        "気になるものはありますか？",
        ((_call("search_manga", genre="mystery", limit=5),),),
    ),
    Turn(
        "By the way, at the weekend I read together with my daughter Hina, who is ten and learns"
        " English. Something gentle that exists in both languages would be perfect for us.",
        "Lovely, a bilingual shelf for you and Hina. Two gentle series come in Japanese and"
        " English: 'The Cat and the Crossing Keeper' (5 volumes, rated 4.8) and 'The Lighthouse"
        " Star Post' (12 volumes, rated 4.7). Both are calm, have short chapters and nothing"
        " frightening. The first one has very little text on each page, so it suits a beginner"
        " best.",
        ((_call("search_manga", genre="slice of life", limit=4),),),
    ),
    Turn(
        "硝子町の夜回り探偵について、もう少し詳しく知りたいです。",
        "『硝子町の夜回り探偵』（久遠 透）は全三十六巻、一巻594円（税抜）、日本語版と英語版があります。"
        "夜回りの探偵が、血の流れない事件だけを引き受け、硝子に映ったものを手がかりに解いていきます。"
        "一話完結が多いので、電車で区切りよく読めます。絵は淡い線と余白が特徴です。",
        ((_call("get_manga", asin="B07X2201"),),),
    ),
    Turn(
        "長そうですね。全部の巻の発売日と在庫を一覧で見せてもらえますか？",
        "全三十六巻の一覧を確認しました。第一巻は2016年4月発売、その後はおよそ百日ごとに刊行されています。"
        "価格はどの巻も594円（税抜）で、日本語版と英語版があります。在庫は巻によって違いますが、"
        "第一巻から第三巻は"
        "本日発送できます。まずは三巻まで読んで、続きを決めるのはいかがでしょうか。",
        ((_call("list_volumes", asin="B07X2201"),),),
    ),
    Turn(
        "My budget is 3,000 yen per order, tax included. Would volumes one to three of the Glass"
        " Town series fit? Tax is ten percent.",
        "Yes. Three volumes at 594 yen are 1,782 yen, and 1,960 yen with ten percent tax. That"
        " leaves 1,040 yen of your 3,000 yen, enough for one more volume of almost anything in the"
        " catalogue. I will keep the limit of 3,000 yen an order in mind from now on.",
        ((_call("calculator", expression="594 * 3 * 1.1"),),),
    ),
    Turn("ありがとう、わかりやすいです。", "どういたしまして。続けて探しましょう。"),
    Turn(
        "すみません、訂正です。予算は3,000円ではなくて、税込3,500円まででした。"
        "以前の注文と勘違いしていました。",
        "訂正ありがとうございます。一回のご注文の上限を、税込3,000円から税込3,500円に改めました。"
        "以後のご提案は"
        "すべて3,500円以内で計算します。硝子町の一〜三巻（税込1,960円）を選ぶ場合、残りは1,540円です。",
    ),
    Turn(
        "Where is my order ORD-48213? I expected it by the weekend.",
        "ORD-48213 holds volumes 1 and 2 of 'The Lighthouse Star Post'. It was placed on November 2"
        " and has been shipped with Tsubame Express to your home address; it should arrive on"
        " November 6. So it will be there before the weekend, and there is nothing you need to do.",
        ((_call("order_status", order_id="ORD-48213"),),),
    ),
    Turn(
        "もう一つ、ORD-48377のほうはいつ届きますか？今日が何日かも教えてください。",
        "ORD-48377は『さかさま図書館の司書見習い』の一〜三巻で、現在は出荷準備中です。"
        "ツバメ急便で11月9日にご自宅へ"
        "到着の予定です。今日の日付もあわせて確認しました。発送されましたら追跡番号をお知らせします。",
        (
            (
                _call("order_status", order_id="ORD-48377"),
                _call("current_time", timezone="Asia/Tokyo"),
            ),
        ),
    ),
    Turn(
        "ORD-48377は、できれば自宅ではなく会社で受け取りたいです。平日の昼間は家に誰もいないので。",
        "ORD-48377はまだ準備中ですので、お届け先を会社に変えられます。"
        "平日の昼間はご自宅が不在とのこと、今後のご注文も"
        "平日着のときは会社宛てを先にご提案します。変更の確定には、"
        "発送前に「注文履歴」から一度だけご本人の確認が必要です。",
    ),
    Turn(
        "Do you have volumes 3 and 4 of The Lighthouse Star Post in stock? Hina will want to go on"
        " reading.",
        "Both are in stock in the Kawasaki warehouse and can leave today: 2 copies of volume 3 and"
        " 19 of volume 4. Volume 3 is nearly sold out, so if Hina is close to the end of volume 2,"
        " I would not wait too long. Each is 680 yen before tax.",
        (
            (
                _call("get_stock", asin="B07X1234", volume=3),
                _call("get_stock", asin="B07X1234", volume=4),
            ),
        ),
    ),
    Turn(
        "灯台守の3巻と4巻、それに硝子町の1巻を一緒に買うと、税込でいくらになりますか？",
        "灯台守の星郵便の三巻と四巻（各680円）、硝子町の夜回り探偵の一巻（594円）で、税抜1,954円、"
        "税込では2,149円です。"
        "上限の3,500円まで、あと1,351円あります。もう一冊加えても予算に収まります。",
        ((_call("calculator", expression="(680 * 2 + 594) * 1.1"),),),
    ),
    Turn(
        "今日は一日雨で、電車も遅れていました。こういう日は家で静かに読みたいですね。",
        "雨の日のお疲れさまでした。雨の場面が多い作品なら『硝子町の夜回り探偵』の二巻がおすすめです。"
        "雨の夜だけ鳴る風鈴をめぐる一話は、窓辺で読むのにちょうどいい静けさです。",
    ),
    Turn(
        "I also need a present for a friend who loves science fiction, but the calm kind, without"
        " wars.",
        "Two calm ones without any war: 'The Moonside Winding Workshop' (11 volumes, 748 yen, rated"
        " 4.6), about two sisters who repair clockwork on the dark side of the moon, and 'Radio"
        " from the Deep' (6 volumes, 737 yen, rated 4.3), about two people who broadcast from the"
        " sea floor. For a present I would take the first volume of the Workshop.",
        ((_call("search_manga", genre="science fiction"),),),
    ),
    Turn(
        "月面ねじ巻き工房のあらすじと巻数を教えてください。友達は日本語で読みます。",
        "『月面ねじ巻き工房』（歯車 いと）は全十一巻、一巻748円（税抜）です。"
        "電気の届かない月の裏側で、姉妹がねじ巻きの"
        "機械を一つずつ直していく物語で、戦いはありません。日本語版も英語版もありますので、"
        "日本語版をご用意できます。",
        ((_call("get_manga", asin="B07X4412"),),),
    ),
    Turn(
        "友達の誕生日は12月3日です。ミキさんといいます。プレゼント用に包装もお願いできますか？",
        "ミキさんのお誕生日、12月3日ですね。『月面ねじ巻き工房』一巻を包装付きでご用意できます。"
        "包装は無料、"
        "メッセージカードは二十文字までです。余裕をもって、11月末までのご注文をおすすめします。",
    ),
    Turn(
        "Sorry, I wrote it wrong: her name is Mika, not Miki. Please put the right name on the"
        " card.",
        "Corrected: the card will say Mika, not Miki. The present stays the first volume of 'The"
        " Moonside Winding Workshop' in Japanese, gift-wrapped, to arrive before December 3. Thank"
        " you for telling me before anything was printed.",
    ),
    Turn(
        "そういえば、列車が出てくる話もありましたよね。まだ在庫はありますか？",
        "『回送列車に乗って』（終電 まよい、全十一巻、682円）ですね。"
        "回送列車に乗り込んだ人だけがたどり着く駅で、"
        "車掌が忘れ物を探す、静かで少し不思議なミステリーです。一巻は在庫が七冊あり、本日発送できます。"
        "通勤電車で読むと、きっと降りる駅を忘れます。",
        ((_call("search_manga", query="列車"),), (_call("get_stock", asin="B07X8450", volume=1),)),
    ),
    Turn(
        "それと第七埠頭の幽霊会計士では、どちらが怖くないですか？比べてもらえますか？",
        "怖さだけで言えば『第七埠頭の幽霊会計士』のほうが怖くありません。幽霊は出ますが、"
        "残業中の会計士で、笑える場面が"
        "中心です。『回送列車に乗って』は夜の駅の寂しさがありますが、驚かせる演出や流血はありません。"
        "静けさを取るなら回送列車、気楽さを取るなら幽霊会計士です。",
        ((_call("get_manga", asin="B07X8450"), _call("get_manga", asin="B07X6178")),),
    ),
    Turn(
        "My father likes cooking stories. He reads Japanese only, and I would not spend more than"
        " 650 yen a volume on it. Is there anything?",
        "There is one that fits exactly: 'The Tide-Waiting Diner' (潮待ち食堂), 18 volumes, 627 yen"
        " each, in Japanese. Every chapter is one dish and one confession of a sailor who waits for"
        " the tide. It is warm and unhurried, and the dishes can be cooked at home: each volume"
        " ends with three recipes.",
        ((_call("search_manga", genre="food", max_price_yen=650),),),
    ),
    Turn(
        "潮待ち食堂の巻ごとの在庫を見せてください。父には最初の何冊かをまとめて送りたいです。",
        "全十八巻の在庫を確認しました。価格はどの巻も627円（税抜）、日本語版のみです。"
        "在庫のある巻は本日発送できます。"
        "お父さまへは一〜五巻をまとめると税込3,448円で、上限の3,500円に収まります。",
        ((_call("list_volumes", asin="B07X3105"),),),
    ),
    Turn(
        "なるほど、いいですね。",
        "はい。お父さまの分は、別のご注文にしておくと予算の管理がしやすいです。",
    ),
    Turn(
        "What is your return policy, in case my father already owns one of them?",
        "Unread volumes can come back within 14 days of delivery. We pay the way back if the"
        " mistake was ours, otherwise it is 385 yen for a parcel. For a present we can also send an"
        " exchange voucher instead of the money, so your father could choose another volume"
        " himself.",
    ),
    Turn(
        "先月のORD-48502ですが、3巻の表紙が折れていました。どうしたらいいですか？",
        "ORD-48502は『猫と踏切番』の一〜五巻で、10月23日に会社へお届け済みです。"
        "表紙の折れは当店の責任ですので、"
        "三巻を無料でお取り替えします。写真を一枚お送りいただければ、返送は不要です。"
        "ご迷惑をおかけしました。",
        ((_call("order_status", order_id="ORD-48502"),),),
    ),
    Turn(
        "Please send a replacement for volume 3 rather than a refund, and send it to the office"
        " again.",
        "Noted: a replacement of volume 3 of 'The Cat and the Crossing Keeper' for ORD-48502, no"
        " refund, to the office. It leaves the warehouse tomorrow with Minato Post and needs two"
        " working days. You can keep the damaged copy, perhaps as the one that Hina may draw in.",
    ),
    Turn(
        "秋の送料無料キャンペーンは今日の何時までですか？今の時刻も知りたいです。",
        "秋の送料無料キャンペーンは、本日の二十三時五十九分（日本時間）までのご注文が対象です。"
        "現在の時刻も確認しました。"
        "対象は税込2,000円以上のご注文ですので、灯台守と硝子町の三冊でも送料無料になります。",
        ((_call("current_time", timezone="Asia/Tokyo"),),),
    ),
    Turn(
        "500円引きのクーポンを使って、灯台守2冊、硝子町1冊、月面ねじ巻き工房1冊だと、いくらですか？",
        "四冊の合計は税抜2,702円、税込2,972円です。500円引きのクーポンを使うと2,472円になります。"
        "上限の3,500円以内で、"
        "送料無料の条件（税込2,000円以上）も割引後の金額で満たしています。",
        ((_call("calculator", expression="(680 * 2 + 594 + 748) * 1.1 - 500"),),),
    ),
    Turn(
        "A colleague told me to read Order of the Red Rust. Is it something for me?",
        "I would not recommend it to you. 'Order of the Red Rust' is a war chronicle with graphic"
        " violence, and you told me that you want no blood and no cruelty. If it is the old armour"
        " that interests you, 'Fencing Lessons for Bubbles' plays in a similar time, and its"
        " fencing master never draws his sword.",
        ((_call("get_manga", asin="B07X7333"),),),
    ),
    Turn(
        "やっぱり血が出るものは無理です。赤錆騎士団は今後もおすすめに出さないでください。",
        "わかりました。『赤錆騎士団』は今後のおすすめから完全に外し、"
        "流血表現のある作品も引き続き除外します。"
        "同僚の方には、表紙だけ眺めたことにしておきましょう。",
    ),
    Turn(
        "絵柄の好みで言い忘れていました。背景が細かく描き込まれている作品より、"
        "余白の多いページが好きです。",
        "絵柄のお好みに「余白の多いページ」を加えました。淡いタッチと余白という条件なら、『猫と踏切番』と"
        "『灯台守の星郵便』がもっとも近いです。反対に『ぽんこつ測量士、雲をゆく』は描き込みが多めです。",
    ),
    Turn(
        "Let us look at fantasy again. What do you have for under 710 yen a volume?",
        "Under 710 yen there are two fantasy series for you: 'The Lighthouse Star Post' (680 yen),"
        " which you and Hina already read, and 'The Princess Will Not Return to the Paper Castle'"
        " (704 yen, 13 volumes, rated 4.4). I left out 'Order of the Red Rust', as you asked.",
        ((_call("search_manga", query="fantasy", max_price_yen=710),),),
    ),
    Turn(
        "紙の城の王女は帰らない、はどんな話ですか？恋愛が中心だと少し苦手かもしれません。",
        "『紙の城の王女は帰らない』（千代 折、全十三巻）は、折り紙の城から逃げ出した王女が、"
        "水の国で郵便配達になる物語です。"
        "恋愛はありますが、中心は配達先で出会う人々の話です。五巻までは恋愛の場面はほとんどありません。",
        ((_call("get_manga", asin="B07X6014"),),),
    ),
    Turn(
        "念のため訂正です。わたしが欲しいのは電子版ではなく、紙の本です。全部そうしてください。",
        "承知しました。ご注文もご案内も、すべて紙の本でお取り扱いします。"
        "在庫とお届け日は紙の本のものをお伝えしています。"
        "これまでにお伝えした価格も紙の本の価格ですので、合計は変わりません。",
    ),
    Turn(
        "Please check the stock of the paper editions once more: Lighthouse 3 and 4, Glass Town 1,"
        " Workshop 1.",
        "All four paper editions can leave Kawasaki today: 'The Lighthouse Star Post' volume 3 (2"
        " copies) and volume 4 (19 copies), 'The Night-Round Detective of Glass Town' volume 1 (13"
        " copies), and 'The Moonside Winding Workshop' volume 1 (22 copies). Volume 3 is still the"
        " scarce one.",
        (
            (
                _call("get_stock", asin="B07X1234", volume=3),
                _call("get_stock", asin="B07X1234", volume=4),
                _call("get_stock", asin="B07X2201", volume=1),
                _call("get_stock", asin="B07X4412", volume=1),
            ),
        ),
    ),
    Turn(
        "では、その4冊で注文します。クーポンなしの税込合計をもう一度計算してください。",
        "ご注文は紙の本四冊、税抜2,702円、税込2,972円です。上限の3,500円以内で、送料は無料です。"
        "『月面ねじ巻き工房』一巻はミカさん宛ての包装とカードをお付けします。"
        "よろしければ注文を確定してください。",
        ((_call("calculator", expression="(680 * 2 + 594 + 748) * 1.1"),),),
    ),
    Turn(
        "お届けは平日の昼に、会社でお願いします。プレゼントだけは、"
        "12月3日より前に自宅に届くと助かります。",
        "お届けを二つに分けます。灯台守と硝子町の三冊は平日の昼に会社へ、"
        "『月面ねじ巻き工房』の包装品は土曜日にご自宅へ、"
        "12月3日より前に届くように手配します。送料はどちらも無料です。",
    ),
    Turn(
        "Before we finish, please sum up what you know about my taste and my open orders.",
        "Your taste: quiet mysteries and fantasy, pale drawing with much white space, no blood or"
        " cruelty, never 'Order of the Red Rust'; paper books; at most 3,500 yen an order, tax"
        " included; bilingual and gentle for reading with Hina. Open: ORD-48213 on its way,"
        " ORD-48377 to the office if you confirm it, the replacement of volume 3 for ORD-48502, and"
        " today's four volumes with the present for Mika.",
    ),
    Turn(
        "完璧です。今日は長い時間ありがとうございました。おやすみなさい。",
        "こちらこそ、ありがとうございました。葵さん、ひなさん、ミカさんに、"
        "よい読書の時間がありますように。おやすみなさい。",
    ),
)

FACTS: tuple[tuple[int, str], ...] = (
    (1, "葵といいます"),
    (2, "血が出る場面や残酷な描写は苦手"),
    (2, "水彩のような淡いタッチ"),
    (4, "my daughter Hina, who is ten"),
    (9, "税込3,500円まで"),
    (12, "会社で受け取りたい"),
    (18, "友達の誕生日は12月3日"),
    (19, "her name is Mika, not Miki"),
    (22, "not spend more than 650 yen"),
    (27, "a replacement for volume 3 rather than a refund"),
    (31, "赤錆騎士団は今後もおすすめに出さないで"),
    (35, "電子版ではなく、紙の本"),
)
"""Facts that the reader states: the turn, and the words."""
SUMMARY_TURN = 39
"""Turn in which the reader asks for everything that the assistant knows."""

_BY_TEXT = {turn.user: turn for turn in TURNS}


def reply(messages: list[Message]) -> Answer:
    """Answer by the script, using only the messages of the request.

    The last text of the user determines the turn, and the tool results after it the step. A
    restarted process therefore continues where the other one stopped, and a trimmed history changes
    nothing. Other text is looked up in the catalogue.
    """
    asked, text = _last_question(messages)
    finished_steps = sum(1 for message in messages[asked + 1 :] if tool_results(message))
    turn = _BY_TEXT.get(text)
    if turn is None:
        return _look_up(text) if finished_steps == 0 else _found(messages[-1])
    if finished_steps < len(turn.steps):
        return [tool_use(call) for call in turn.steps[finished_steps]]
    return turn.answer


def tool_results(message: Message) -> list[dict[str, Any]]:
    """Return the tool results of a message."""
    return [block["toolResult"] for block in message["content"] if "toolResult" in block]


def tool_use(call: Call) -> dict[str, Any]:
    """Return a tool call as a content block with a new id."""
    return {
        "toolUse": {
            "toolUseId": f"tooluse_{uuid.uuid4().hex[:22]}",
            "name": call.tool,
            "input": call.arguments,
        }
    }


def _last_question(messages: list[Message]) -> tuple[int, str]:
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        texts = [block["text"] for block in message["content"] if "text" in block]
        if message["role"] == "user" and texts and not tool_results(message):
            return index, next((text for text in texts if text in _BY_TEXT), texts[0])
    raise ValueError("the request holds no question of the user")


def _look_up(text: str) -> Answer:
    return [tool_use(_call("search_manga", query=text))]


def _found(message: Message) -> str:
    """Answer with the result of ``search_manga``."""
    hits = json.loads(tool_results(message)[0]["content"][0]["text"])
    if not hits:
        return (
            "(scripted) Nothing in the catalogue. Try one word: mystery, fantasy, food, 猫, 列車."
        )
    lines = [
        f"- {hit['title_ja']} / {hit['title_en']}, {hit['volumes']} volumes, {hit['price_yen']} yen"
        for hit in hits
    ]
    return "\n".join(["(scripted) From the catalogue:", *lines])
