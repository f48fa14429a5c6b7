"""The words by which a user's likes and dislikes are known, in English and Japanese. Pure."""

from __future__ import annotations

import re

_GENRES = (
    r"horror|romance|rom-?coms?|shou?nen|seinen|shou?jo|josei|isekai|myster(?:y|ies)|fantasy|sci-?fi|science fiction|sports?"
    r"|comed(?:y|ies)|slice[- ]of[- ]life|action|adventure|historical|mecha|cooking|thrillers?|suspense|drama|psychological"
    r"|supernatural|cyberpunk|noir|dystopian|superhero(?:es)?|martial arts|yuri|yaoi|boys'? love|girls'? love|crime|detective"
    r"|magical girls?|post-apocalyptic|vampires?|zombies?|traged(?:y|ies)|gore|violence|harem|school life|coming[- ]of[- ]age"
    r"|samurai|ninja|military|medical|idols?|gag|villainess|time travel|biograph(?:y|ies)|essays?"
)
_GENRES_JAPANESE = (
    r"ホラー|恋愛|ロマンス|ラブコメ|少年漫画|青年漫画|少女漫画|女性漫画|少年マンガ|青年マンガ|少女マンガ|異世界"
    r"|ミステリー|推理|ファンタジー"
    r"|(?<![A-Za-z])(?-i:SF|BL)(?![A-Za-z])|スポーツ|コメディ|ギャグ|日常系|日常|アクション|バトル|冒険|歴史"
    r"|ロボット|グルメ|料理|スリラー|サスペンス|ドラマ|百合|ゾンビ|グロ(?!ー)"
    r"|暴力|怖い話|怪談|ハーレム|転生|悪役令嬢|医療|不良|ヤンキー|戦争|探偵|魔法少女|学園|青春|エッセイ|四コマ"
    r"|時代劇|格闘|吸血鬼|音楽|悲劇"
)
_FORMATS = (
    r"digital(?: editions?)?|e-?books?|paperbacks?|hardcovers?|print(?: editions?)?|box ?sets?|audiobooks?|omnibus(?:es)?"
)
_FORMATS_JAPANESE = (
    r"電子書籍|電子版|電子(?=より|派|で読|が|の(?:ほう|方))|紙の本|紙(?!袋|箱|幣)|単行本|文庫|愛蔵版|全巻セット|ボックスセット"
)
_LANGUAGES = "japanese|english|french|german|spanish|chinese|korean|italian|portuguese"

VALUES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("genre", re.compile(rf"\b(?:{_GENRES})\b|{_GENRES_JAPANESE}", re.IGNORECASE)),
    ("format", re.compile(rf"\b(?:{_FORMATS})\b|{_FORMATS_JAPANESE}", re.IGNORECASE)),
    (
        "language",
        re.compile(
            rf"\b(?:in )?({_LANGUAGES})(?= (?:editions?|versions?|translations?|originals?|books?|manga|language)\b|[.!,]"
            rf"|\s?\Z)"
            r"|(?:日本語|英語|中国語|韓国語)(?=版|で|の)",
            re.IGNORECASE,
        ),
    ),
)
"""Slots whose values are known by name."""

AUTHOR = re.compile(
    r"\b(?:by|author|mangaka|artist|writer) ([A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){0,2})"
    r"|\b([A-Z][\w.-]{1,20}(?: [A-Z][\w.-]{1,20}){0,2})'s? (?:works?|manga|art|books|style|stories|drawings)\b"
    r"|\A\W*([A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){1,2}) is (?:\w+ ){0,2}?favou?rite"
    r"|\b(?:author|mangaka|artist|writer)s?(?: [\w' ]{1,40}?)? (?:is|are) ([A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){0,2})"
    r"|\b(?:anything|everything|whatever|all) (?:that )?([A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){0,2}) (?:\w+s|has|puts)\b"
    r"|([^\s、。はがもを]{2,12}?)(?:先生|さんの(?:作品|漫画|マンガ|絵))"
    r"|([\u3400-\u9fff々\u30a1-\u30fa\u30fc・]{4,12}|[\u3041-\u3096]{2,4}[\u3400-\u9fff]{1,2})の(?:作品|漫画"
    r"|マンガ)(?=が|は|も|の|なら|を|だけ)"
)

_ADVERBS = (
    r"(?:(?:really|just|truly|absolutely|actually|totally|honestly|also|still|always|usually|mostly|mainly|especially|now"
    r"|definitely|generally|do|only|kind of|kinda|much|so|both|very|quite|completely|simply|particularly|too"
    r"|currently) ){0,4}"
)
_I = r"(?:\b(?:i|we)|^)"
LIKES = re.compile(
    rf"{_I} ?{_ADVERBS}(?:love|like|enjoy|adore|prefer|fancy)\b(?! to (?!read))(?! (?:it|that|this|them|those|these|your?"
    rf"|how|what)\b)"
    rf"|{_I}(?:'d| would) {_ADVERBS}(?:prefer|rather (?:have|read|get|buy|go (?:for|with)))\b(?! to (?!read))"
    rf"|\b(?:i|we)(?:'m| am|'re| are)(?: now)? {_ADVERBS}(?:into|(?:an? )?{_ADVERBS}(?:big |huge |massive |great "
    rf"|real )?(?:fans? of"
    r"|lover of)|crazy about|obsessed with|hooked on|addicted to|keen on|fond of|partial to|all about|in love with)\b"
    r"|\b(?:i|we)(?:'ve| have) (?:always )?(?:loved|liked|enjoyed|been (?:really |very )?(?:into|reading a lot of|enjoying"
    r"|loving))\b"
    rf"|{_I} ?(?:(?:only|mostly|mainly|usually|always|exclusively) (?:read|buy|collect|want)|can't get enough of"
    rf"|(?:usually |mostly |always )?go for"
    r"|read (?:a lot of|mostly|only|mainly)|switched to|have switched to|want more|can only read)\b"
    r"|\bmy (?:absolute )?favou?rites? (?:is|are|would be|genres? (?:is|are))\b"
    r"|\b(?:more|only|just)(?= [\w -]{2,30}(?:,? please|\s?\Z))",
    re.IGNORECASE,
)
DISLIKES = re.compile(
    rf"{_I} ?{_ADVERBS}(?:hate|dislike|detest|loathe|despise|avoid|can't stand|cannot stand|can't bear|refuse to read|skip)\b"
    rf"|\b(?:i|we) {_ADVERBS}(?:don't|do not|didn't|never|no longer|can't|cannot|won't) {_ADVERBS}(?:like|love|enjoy"
    rf"|care for|read"
    r"|want|need|prefer|get into|do|buy|liked|enjoyed|handle|stand)\b"
    rf"|\b(?:i|we)(?:'m| am|'re| are) (?:{_ADVERBS}not|no longer|no) {_ADVERBS}(?:into|(?:an? |much of an? )?(?:big |huge )?"
    r"fans? of|fan of|fond of|keen on|interested in|crazy about|in the mood for)\b"
    rf"|\b(?:i|we)(?:'m| am|'ve|'ve got| have|'re| are)? {_ADVERBS}(?:tired of|sick of|bored (?:of|with|by)|fed up with"
    rf"|done with"
    r"|over|had enough of|gone off|allergic to|stopped (?:reading|liking|enjoying)|quit reading|scared of|burned out on)\b"
    r"|\b(?:no more|please no|stop (?:recommending|suggesting|showing)(?: me)?|please (?:avoid|skip)|nothing (?:with|too)"
    r"|less"
    r"|don't (?:recommend|suggest|show)(?: me)?(?: any)?|do not (?:recommend|suggest|show)(?: me)?)\b"
    r"|\A\W{0,4}no(?= [\w -]{2,30}(?:,? please|,? thanks|\s?[.!]?\s?\Z))",
    re.IGNORECASE,
)
ONCE = re.compile(r"\b(?:i|we) (?:used to|once) (?:really )?(?:love|like|enjoy|read|be (?:into|a fan of))d?\b", re.IGNORECASE)
NOT_SAID = re.compile(
    r"\b(?:if|unless|whether|suppose|imagine|someone|people|everyone|nobody|they|he|she|his|her|their)\b"
    r"|\bmy (?!fav|absolute)[\w']+ (?:\w+ )?(?:loves?|likes?|enjoys?|hates?|prefers?|is into|thinks?|says?)\b"
    r"|\bdo(?:n't)? you\b|\b(?:did|does|would|could|can) (?:i|you|we|it)\b|\bi (?:think|guess|heard|wonder"
    r"|said) (?:that )?(?:you|the)\b",
    re.IGNORECASE,
)
"""What makes a clause somebody else's taste, or none at all."""
MOMENT = re.compile(r"\b(?:want|need|get|do|buy|have|handle)\s*\Z|\A(?!.*\b(?:i|we|my)\b)", re.IGNORECASE)
"""A predicate that of an unknown thing tells no taste: a wish of the moment, or an instruction such as "no ..."."""
SOMEBODY = re.compile(
    r"\A\W*my (?!fav|absolute|go-?to)(?:[\w']+ ){1,2}?(?:can't|can|don't|doesn't|won't|\w+s)\b", re.IGNORECASE
)

BUT_NOT = re.compile(r",? \b(?:but not|not|except(?: for)?|and not|just not|without)\b ", re.IGNORECASE)
ENDS = re.compile(
    r"\s(?:because|since|when|while|so (?:i|please|can)|as long as|these days|right now|rather than|instead of|over"
    r"|more than|to|for"
    r"|at all|any ?more|anymore|the most|the best|a lot|very much|so much|than|lately|nowadays|now|again|please|thanks|too"
    r"|as well"
    r"|but|though|although|if|which|who|that|on|with|as)\b.*|[.!?…].*",
    re.IGNORECASE | re.DOTALL,
)
NARROWED = re.compile(r"\A\s+(?:which|who|that|with|on|for|made|featuring|involving)\b", re.IGNORECASE)
"""How the end of an object begins that is a part of it: "games with graphic violence" are not games."""
ADDS = re.compile(r"\b(?:also|too|as well|both|besides)\b|も(?:好き|大好き|いい|読)", re.IGNORECASE)
EMPTY_OBJECT = re.compile(
    r"\A(?:(?:it|that|this|them|those|these|you|your|me|him|her|us)\b.*|.*\b(?:this|it|that|them)|how|what"
    r"|the (?:first|second|last|idea|sound|look|one|price|service"
    r"|store|shop"
    r"|way|fact)\b.*|to\b.*|being\b.*|one|both|all|any|some|something|anything|everything|a (?:refund|lot|copy)\b.*"
    r"|an? order\b.*)?\Z",
    re.IGNORECASE,
)

DISLIKES_JAPANESE = re.compile(
    r"好きじゃな|好きでは(?:な|あり)|好きでな|嫌い|きらい|苦手|無理|飽き|もういい|もう結構|読まな|読みたくな"
    r"|避け|やめて|いらな|要らな"
    r"|なしで|以外|ダメ|だめ|駄目|興味(?:が|は)?(?:な|ありませ)|好みじゃ|好みでは|合わな|うんざり|勘弁|読めな|買わな"
)
LIKES_JAPANESE = re.compile(
    r"好き|ハマっ|はまっ|派(?:です|だ|なん|なの|。|\Z)|愛し|目がな|よく読|ばかり|ばっかり|お気に入り|推し|(?:が"
    r"|ほうが|方が)(?:いい|良い|よい)"
    r"|だけ(?:読|買)|もっぱら|読みた[いく]|揃え|ことが多い|に夢中|好み|がメイン|中心に読|しか読ま|しか買わ|を(?:集め|愛読)"
)
NEEDED = re.compile(r"\b(?:i|we) (?:only |just |really |always )?(?:want|need|require)\b", re.IGNORECASE)
"""A wish of the moment, of a genre; of a format or a language it is a preference."""
ONCE_JAPANESE = re.compile(
    r"(?:昔|以前|前)は.{0,40}(?:好きだった|好きでした|読んで(?:いた|いました|た))|好きだった(?!り)|好きでした(?!か)"
)
ONLY_JAPANESE = re.compile(r"しか(?:読[まめみ]|買[わいえ])")
NOT_SAID_JAPANESE = re.compile(
    r"(?:妻|夫|娘|息子|母|父|兄|弟|姉|妹|友達|友人|彼女?|子ども|子供|あの人|上司|同僚|先輩|旦那"
    r"|主人)(?:さん)?(?:は|が|も|の好き|的)"
    r"|みんな|皆(?:さん)?[はがも]|(?:ます|です|なの|の|でしょう)か[。？?]*\Z|[？?]\Z|もし|としたら|そうです\Z|らしい|だったら"
)
RATHER_JAPANESE = re.compile(r"\A.{0,120}(?:より(?:も)?|じゃなくて|ではなく|でなく)(?!も)")
CLAUSES_JAPANESE = re.compile(
    r"、|，|けれども?|けど|(?<=です)が|(?<=ます)が|(?<=だ)が|(?<=い)が(?=[^好いよ])|(?<=い)し(?=[^ーて])"
    r"|(?<=で)、|ので|から(?=[^、。]{2})"
)
"""Where one Japanese statement ends and the next begins."""

SPEAKER = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|nothing)\b", re.IGNORECASE)
INSTRUCTION = re.compile(
    r"\A\W*(?:please|no|only|just|more|less|leave|keep|skip|drop|exclude|without|stick to)\b|\bplease\b", re.IGNORECASE
)
UNWANTED = re.compile(r"\b(?:no|not|never|without|less|leave|skip|drop|exclude|spare)\b", re.IGNORECASE)
AS_A_RULE = re.compile(r"\b(?:i|we)\b|\bonly with\b|\bfor me\b|\bplease\b|\bhere\W*\Z", re.IGNORECASE)
"""What of a clause with a known value says that it is the speaker's, what he asks for, and what he does himself."""

NO_TASTE = re.compile(
    r"\b(?:you|your)\b|\b(?:want|need|look(?:ing)? for|search\w*|like to (?!read)|show|give|send|find out|found"
    r"|recommend|suggest|add|see|saw|bought|ordered|got|received"
    r"|heard|know|think|thought|said|told|asked|wonder|work|write|draw|study|forgot|lost|finished|started)\b"
    r"|\b(?:read|say|says) that\b"
    r"|\b(?:ago|yesterday|tomorrow|today|tonight|last (?:week|month|time|night)|next (?:week|month|time)|for my"
    r"|for a friend)\b",
    re.IGNORECASE,
)
"""What a clause does that names a kind of things and says nothing of a taste: a wish of the moment, an event, a report."""
FOR_ME = re.compile(r"\b(?:for|to|with|on) me\b", re.IGNORECASE)
NEGATIVE = re.compile(r"\b(?:not|never|no|hardly|barely|nor|without|\w+n't|cannot)\b", re.IGNORECASE)
OBJECT_JAPANESE = re.compile(
    r"\*(?:もの|系|漫画|マンガ|作品|の本|の作品|本)?(?:のほう|の方)?(?:[はがをもに]|なら|ばかり|だけ|って"
    r"|があれば)(?!です|どこ|いつ)"
)
NO_TASTE_JAPANESE = re.compile(
    r"くださ|下さ|お願い|もらえ|くれ|ほし|欲し|探し|買いたい|たいのです|ましたら?\Z|でした\Z|った\Z|思い|聞"
    r"|この|その|あの|どの|相談|ゲーム|映画|アニメ|ドラマ化"
)
NEGATIVE_JAPANESE = re.compile(r"(?<!しか)(?<!違い)(?<!しれ)(?:ない|無い|ません|なかった|ありませ)(?!か)")
SPECIFIC = re.compile(r"\b(?:the|this|that|these|those|my|your|our|his|her|their)(?: [\w-]+){0,2} \Z", re.IGNORECASE)
"""Before a value: one thing at hand, such as the paperback that came, and no kind of things."""
SHOP = re.compile(
    r"\b(?:deliver\w*|ship\w*|refunds?|returns?|orders?|ordered|orders|parcels?|packages?|packag\w+|fees?"
    r"|queues?|support|service|website|site|app"
    r"|checkout|payments?|stock|arriv\w*|torn|damaged|subscription|sections?|search|prices?|cover|pages?|waiting|paying"
    r"|questions?|download\w*|account)\b"
    r"|売れ|人気|流行|有名|安い|わから|分から|知ら|使い方|読み方|続き|作者|届|注文|配送|発送|在庫|売り切れ|返品"
    r"|返金|破れ|折れ|汚れ|棚|コーナー|売り場|発売|値上|値段|見つか|表示|ダウンロード|待た|対応|返事|問い合わせ"
    r"|手続|アプリ|サイト|送料|包装|梱包",
    re.IGNORECASE,
)
"""What the shop does: who is content or not with that, has no taste."""
THING_JAPANESE = re.compile(
    r"([^\s、。！？はがをもに]{1,20}?)(?:が|は|には|を|って)(?:とても|すごく|本当に|ほんとに|めっちゃ|かなり"
    r"|昔から|ずっと|一番|いちばん|ちょっと|どうも|特に|あまり|大)*"
    r"(?:好き|推し|愛して|ハマっ|はまっ|苦手|嫌い|きらい|無理|飽き)"
)
NO_THING_JAPANESE = re.compile(
    r"(?:の|こと|とき|時|方|ほう|それ|これ|あれ|どれ|何|今|私|僕|俺|自分|本|漫画|マンガ|もの|話|\d|巻)\Z"
)
AS_ONE_LIKES = re.compile(r"好きな(?:とき|時|だけ|よう|ほう|方|もの|タイミング)")

STATED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (slot, re.compile(pattern, re.IGNORECASE))
    for slot, pattern in (
        (
            "budget",
            r"(?:\bspend(?:ing)?|\bpay|\bbudget|\bkeep|\bstay|\bnothing|\bprice|\bafford|\bcosts?)\b.{0,30}?\b((?:under"
            r"|below|over|less than|up to"
            r"|at most|(?:no )?more than|within|around|about|of|is|maximum|max)\s+(?:[$€£¥]\s?\d[\d,.]*"
            r"|\d[\d,.]*\s?(?:dollars|yen|euros?|pounds"
            r"|bucks|usd|jpy|円)))",
        ),
        (
            "budget",
            r"\bi(?: have|'ve got|'ve| have got| only have) (?:about |around |only )?([$€£¥]\s?\d[\d,.]*"
            r"|\d[\d,.]*\s?(?:dollars|yen"
            r"|euros?)) to spend",
        ),
        (
            "budget",
            r"(?<![\d,，〇一二三四五六七八九十百千万])([\d〇一二三四五六七八九十百千万][\d,，〇一二三四五六七八九十百千万]{0,9}\s?円(?:以内"
            r"|まで|以下|くらいまで|ぐらいまで|前後))",
        ),
        (
            "style",
            r"\b((?:short|brief|concise|long|detailed|simple|polite|casual|formal|shorter|longer|friendlier"
            r"|more detailed) (?:answers?|replies"
            r"|responses?|explanations?|messages?))\b(?=.{0,20}(?:please|thanks)|\s?[.!]?\s?\Z)",
        ),
        (
            "style",
            r"\b(?:please |just |can you |could you )?((?:keep (?:it|your (?:answers|replies)|(?:the )?answers"
            r"|things) (?:short|brief|simple|concise|casual|formal))"
            r"|be (?:brief|concise|casual|more (?:formal|casual|concise|brief))|(?:no|don't use|without|stop using"
            r"|skip the) emojis?|use bullet points"
            r"|(?:explain|answer|describe) (?:everything |things )?(?:in detail|briefly|simply))\b",
        ),
        (
            "style",
            r"\b((?:bullet points|lists|tables|short answers|plain language"
            r"|simple words))(?: \w+){0,2} (?:works? )?best for me\b",
        ),
        (
            "style",
            r"(?:返事|返答|回答|答え|説明|口調|話し方|文章)[はをも]((?:[^、。]{0,12}?)(?:短め|短く|長め|詳しめ|簡単"
            r"|簡潔|シンプル|くだけた|やさし[いく]|丁寧))(?=で|に|な|お願)",
        ),
        (
            "style",
            r"((?:気軽に|フレンドリーに|親しげに|やさしく|易しく|ゆっくり|簡単に|わかりやすく|分かりやすく"
            r"|要点だけ))(?=話|説明|教|答|書|返|お願)",
        ),
        ("style", r"((?:くだけた|やさしい|丁寧な|簡単な|わかりやすい|親しみやすい)(?:口調|言葉|話し方|説明|文章))(?=で)"),
        (
            "spoilers",
            r"((?:keep|leave|avoid|without|no|not|don't|do not|skip|hate|please)\b.{0,30}\bspoil\w*|(?:don't|do not"
            r"|never) (?:tell|reveal|say|give away)"
            r"(?: me)? (?:how it ends|the ending|what happens|who \w+))",
        ),
        (
            "spoilers",
            r"((?:ネタバレ|結末|オチ|ラスト|犯人)[はをも]?(?:絶対に?|一切|先に)?(?:やめ|言[わう]|なし|しない|教えない"
            r"|話さない|避け|嫌|禁止|NG|勘弁))",
        ),
        (
            "style",
            r"((?:もっと)?(?:短く|簡潔に|手短に|詳しく|丁寧に|敬語で|タメ口で|ためぐちで|フランクに|箇条書きで"
            r"|絵文字(?:は)?(?:なし|使わない))(?:で|に)?)(?=答|返|説明|お願|話|して|教"
            r"|、|。|\Z|ください)",
        ),
    )
)
"""Statements known by their form; the first group is the value."""
