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

_KANJI_AND_KANA = (
    r"(?<![\u3400-\u9fff])[\u3400-\u9fff々]{2,3}(?!たち|など|だけ|から|まで|より|らし|ばかり|くらい|ぐらい|ながら|みたい|とか"
    r"|ならでは|による|について|として|しい|しか|した|して|され|する|でも|との|への|ごと|だった|なり|もの|こと|いもの|いこと)[\u3041-\u3096]{2,4}"
)
"""A name of the kind of 矢沢あい."""
AUTHOR = re.compile(
    r"\b(?:by|author|mangaka|artist|writer) ([A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){0,2})"
    r"|\b([A-Z][\w.-]{1,20}(?: [A-Z][\w.-]{1,20}){0,2})'s? (?:works?|manga|art|books|style|stories|drawings)\b"
    r"|\A\W*([A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){1,2}) is (?:\w+ ){0,2}?favou?rite"
    r"|\b(?:author|mangaka|artist|writer)s?(?: [\w' ]{1,40}?)? (?:is|are) ([A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){0,2})"
    r"|\b(?:anything|everything|whatever|all) (?:that )?([A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){0,2}) (?:\w+s|has|puts)\b"
    r"|([^\s、。はがもを]{2,12}?)(?:先生|さんの(?:作品|漫画|マンガ|絵))"
    rf"|([\u3400-\u9fff々\u30a1-\u30fa\u30fc・]{{4,12}}|[\u3041-\u3096]{{2,4}}[\u3400-\u9fff]{{1,2}}|{_KANJI_AND_KANA})の(?:作品|漫画"
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
    r"|(?:\b(?:i|we)(?:'ve| have) |\A\W{0,4})(?:never|not) (?:really )?been (?:much of )?(?:an? )?(?:big |huge )?"
    r"(?:into|fans? of|fond of|keen on)\b"
    rf"|(?:\b(?:i|we)(?:'m| am|'re| are) |\A\W{{0,4}})(?:{_ADVERBS}not|no longer|no) {_ADVERBS}(?:into"
    r"|(?:an? |much of an? )?(?:big |huge )?"
    r"fans? of|fan of|fond of|keen on|interested in|crazy about|in the mood for)\b"
    rf"|\b(?:i|we)(?:'m| am|'ve|'ve got| have|'re| are)? {_ADVERBS}(?:tired of|sick of|bored (?:of|with|by)|fed up with"
    rf"|done with"
    r"|over(?! (?:at|here|there|in|on|by)\b)|had enough of"
    r"|gone off|allergic to|stopped (?:reading|liking|enjoying)|quit reading|scared of|burned out on)\b"
    r"|\b(?:no more|please no|stop (?:recommending|suggesting|showing)(?: me)?|please (?:avoid|skip)|nothing (?:with|too)"
    r"|less"
    r"|don't (?:recommend|suggest|show)(?: me)?(?: any)?|do not (?:recommend|suggest|show)(?: me)?)\b"
    r"|\A\W{0,4}no(?= [\w -]{2,30}(?:,? please|,? thanks|\s?[.!]?\s?\Z))",
    re.IGNORECASE,
)
ONCE = re.compile(
    r"\b(?:i|we) (?:used to|once) (?:really )?(?:love|like|enjoy|read|be (?:into|a fan of))d?\b"
    r"|(?<!n't )(?<!not )(?<!never )\b(?:forget|ignore|disregard|erase|delete|scratch|take back)"
    r" (?:(?:what|everything|all|anything|whatever)(?: that)? (?:i|i've|i have)(?: ever)? (?:said|told you|mentioned|wrote)"
    r"(?: earlier| before)? (?:about|of|on|regarding)"
    r"|(?:about |that )?(?:i|me|my) (?:like|lov|hat|lik|enjoy|prefer)\w*(?: of)?)\b",
    re.IGNORECASE,
)
NOT_SAID = re.compile(
    r"\b(?:if|unless|whether|suppose|imagine|someone|people|everyone|nobody|they|he|she|his|her|their)\b"
    r"|\bmy (?!fav|absolute)[\w']+ (?:\w+ )?(?:loves?|likes?|enjoys?|hates?|prefers?|is into|thinks?|says?)\b"
    r"|\b(?:i|we) (?:never|didn't|did not|don't|do not|wouldn't|can't|cannot) (?:\w+ )?(?:say|said|tell|told|claim(?:ed)?"
    r"|mean|meant)\b(?! (?:it|no)\b)"
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

BUT_NOT = re.compile(
    r",? \b(?:but not|not|except(?: for)?|and not|just not|without|apart from|aside from|other than|besides)\b ", re.IGNORECASE
)
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
    r"|だけ(?:読|買)|もっぱら|読みた[いく]|揃え|ことが多い|に夢中|好み|がメイン|中心に読|しか読ま|しか買わ|(?:を|全部|全て|すべて|ぜんぶ)(?:集め|愛読|持って|揃え)"
)
NEEDED = re.compile(r"\b(?:i|we) (?:only |just |really |always )?(?:want|need|require)\b", re.IGNORECASE)
"""A wish of the moment, of a genre; of a format or a language it is a preference."""
ONCE_JAPANESE = re.compile(
    r"(?:昔|以前|前)は.{0,40}(?:好きだった|好きでした|読んで(?:いた|いました|た))|好きだった(?!り)|好きでした(?!か)"
    r"|(?:忘れて|なかったことにして)(?:くだ|下|ほし|欲し|もら|いい|ね|。|\Z)|(?:取り消|撤回)[しす]"
)
ONLY_JAPANESE = re.compile(r"しか(?:読[まめみ]|買[わいえ])")
NOT_SAID_JAPANESE = re.compile(
    r"(?:妻|夫|娘|息子|母|父|兄|弟|姉|妹|友達|友人|彼女?|子ども|子供|あの人|上司|同僚|先輩|旦那"
    r"|主人)(?:さん)?(?:は|が|も|の好き|的)"
    r"|みんな|皆(?:さん)?[はがも]|(?:ます|です|なの|の|でしょう)か[。？?]*\Z|[？?]\Z|もし|としたら|そうです\Z|らしい|だったら"
    r"|(?:と|とは|って|なんて)(?:言|いっ|申し|書)[^、。]{0,6}(?:ない|ません|なかった)|言った覚え"
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
AS_A_RULE = re.compile(r"\b(?:i|we)\b|\bonly with\b|\bfor me\b|\bplease\b|\b(?:here|only)\W*\Z", re.IGNORECASE)
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
NEGATIVE = re.compile(r"\b(?:not|never|no|zero|little|hardly|barely|nor|without|\w+n't|cannot)\b", re.IGNORECASE)
OBJECT_JAPANESE = re.compile(
    r"\*(?:もの|系|漫画|マンガ|作品|の本|の作品|本)?(?:のほう|の方)?(?:[はがをもに]|なら|ばかり|だけ|って"
    r"|があれば)(?!です|どこ|いつ)"
)
NO_TASTE_JAPANESE = re.compile(
    r"くださ|下さ|お願い|もらえ|くれ|ほし|欲し|探し|買いたい|たいのです|ましたら?\Z|でした\Z|った\Z|思い|聞"
    r"|この|その|あの|どの|相談|ゲーム|映画|アニメ|ドラマ化"
)
NOT_DISLIKED_JAPANESE = re.compile(
    r"(?:嫌い|きらい|苦手|無理|ダメ|だめ|駄目|嫌)な?(?:じゃ|では|でも|とは|って|わけ|訳|という)[^、。]{0,6}(?:ない|な[くか]|ありませ|思わ|思いませ)"
)
"""Who does not dislike a thing takes no side by that."""
ASKS_FOR = re.compile(
    r"\A\W*(?:please )?(?:(?:can|could|would) you )?"
    r"(?:give|show|get|find|bring|send|recommend|suggest|try|let's|more|just|only|rather)\b"
    r"|\b(?:please|instead)\W*\Z|くださ|下さ|お願い|もらえ|ほし|欲し|がいい|が良い|にして|頼み|頼む",
    re.IGNORECASE,
)
"""How a wish of the moment is put."""
NEGATIVE_JAPANESE = re.compile(r"(?<!しか)(?<!違い)(?<!しれ)(?:ない|無い|ません|なかった|ありませ)(?!か)")
SPECIFIC = re.compile(r"\b(?:the|this|that|these|those|my|your|our|his|her|their)(?: [\w-]+){0,2} \Z", re.IGNORECASE)
"""Before a value: one thing at hand, such as the paperback that came, and no kind of things."""
SHOP = re.compile(
    r"\b(?:deliver\w*|ship\w*|refunds?|returns?|orders?|ordered|orders|parcels?|packages?|packag\w+|fees?"
    r"|queues?|pay(?!ing)|by card|cash|invoices?|pick(?:ed|ing)? up|support|service|website|site|app"
    r"|checkout|payments?|stock|arriv\w*|torn|damaged|subscription|sections?|search|prices?|cover|pages?|waiting|paying"
    r"|questions?|download\w*|account)\b"
    r"|売れ|人気|流行|有名|安い|わから|分から|知ら|使い方|読み方|続き|作者|届|注文|配送|発送|在庫|売り切れ|返品"
    r"|返金|破れ|折れ|汚れ|棚|コーナー|売り場|発売|値上|値段|見つか|表示|ダウンロード|待た|対応|返事|問い合わせ"
    r"|手続|支払|払[いう]|決済|領収|受け取|アプリ|サイト|送料|包装|梱包",
    re.IGNORECASE,
)
"""What the shop does: who is content or not with that, has no taste."""
THING_JAPANESE = re.compile(
    rf"({_KANJI_AND_KANA}|[^\s、。！？はがをもに]{{1,20}}?)(?:が|は|には|を|って)(?:とても|すごく|本当に|ほんとに|めっちゃ|かなり"
    r"|昔から|ずっと|一番|いちばん|ちょっと|どうも|特に|あまり|大)*"
    r"(?:好き|推し|愛して|ハマっ|はまっ|苦手|嫌い|きらい|無理|飽き|(?:もう|二度と|絶対に?)読(?:みませ|まな|みたくな))"
)
NO_THING_JAPANESE = re.compile(
    r"(?:の|こと|とき|時|方|ほう|それ|これ|あれ|どれ|何|今|私|僕|俺|自分|本|漫画|マンガ|もの|話|\d|巻)\Z"
)
AS_ONE_LIKES = re.compile(r"好きな(?:とき|時|だけ|よう|ほう|方|もの|タイミング)")
