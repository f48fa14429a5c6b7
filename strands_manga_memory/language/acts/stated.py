"""Statements about oneself that are known by their form: a name, a home, a budget, how answers are to be. Pure."""

from __future__ import annotations

import re

NO_NAME = (
    r"(?!(?:back|later|at|on|in|up|out|by|when|if|after|before|tomorrow|today|tonight|again|now|soon|asap|as|any|a|an|the|not|is"
    r"|what\w*|any\w+|maybe|please|crazy|mad|insane|nuts|weird|odd|strange|silly|stupid|dumb|naive|paranoid|cynical|biased|lazy"
    r"|picky|spoiled|boring|basic|cheap|old(?:[- ]\w+)?|sentimental|cheesy|childish|selfish|dramatic|romantic|skeptical"
    r"|sceptical|superstitious|bus|train|car|foot|bike|plane|taxi|feel|gut)\b)"
)
"""What comes after "call me" and is no name."""
_NO_PLACE = (
    r"(?!(?:(?:\w+ )?(?:fear|hope|dread|denial|peace|terror|harmony|sin|shame)"
    r"|(?:the|my|a) (?:\w+ )?(?:past|moment|world|bubble))\b)"
)
_THEN = "and|but|so|because|please|thanks|any ?more|any longer|now|these days|at the moment|right now"
_END = rf"(?=[.,;!?。、！？]|\s+(?:{_THEN})\b|$)"
NAMED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (key, re.compile(pattern, re.IGNORECASE))
    for key, pattern in (
        (
            "name",
            r"\b(?:call(?:ing)? me|my name(?:'s| is(?:n't| not)?)|i(?:'m| am)(?: not)? called|i (?:don't |no longer )?go by"
            rf"|address me as) {NO_NAME}()([\w.-]{{1,30}}(?: [A-Z][\w.-]{{1,30}}){{0,2}})",
        ),
        (
            "name",
            r"(?:名前は(?![^、。]{0,16}(?:ません|ない|忘れ|秘密|内緒|何|なに))()([^\s、。?？]{1,20}?)(?:です|だ|といい|と申し|[。]|$))",
        ),
        (
            "name",
            r"()(?:(?<![^\s、。はが])|(?<=[私僕俺]を)|(?<=[たぼ][しく]を))([^\s、。はがを]{1,20}?)(?:さん)?(?:(?:と|って)呼(?:んで(?!い(?:ます|る|た))|ばないで)|と申します|といいます)",
        ),
        (
            "home",
            r"\bi(?:'m| am)? (?:(?:currently|now|still|not|don't|do not|no longer|used to|have never|never) )?"
            rf"(?:live|lived|living|reside|residing|based) (?:in|at|near) {_NO_PLACE}()(.{{2,60}}?){_END}",
        ),
        (
            "home",
            r"\b(?:i|we)(?:'ve| have)? (?:just |recently |now |finally )?(?:moved|relocated)(?: back| over)? "
            r"(?:from .{2,30}? )?to "
            r"()(?!an?\b|the\b|my\b|our\b|this\b|that\b|your\b)"
            rf"((?-i:[A-Z][\w'-]{{1,30}}(?:,? [A-Z][\w'-]{{1,30}}){{0,3}})|[\w'-]{{2,30}}{_END})",
        ),
        ("home", r"(?:もう|まだ|昔|前|以前)?()([^\s、。はがを]{1,30}?)に[はも]?(?:今は?|もう)?(?:住んで|暮らして|住まい)"),
        (
            "home",
            r"(?:(?:先[月週日]|昨[年日]|去年|今[年月週]|最近|このたび)(?:に|、)?)?()([^\s、。はがをも]{1,30}?)(?:に|へ)"
            r"(?:(?:引っ?越し|転居し|移住し)(?:て(?!い?(?:ない|ません))|ました|た(?!い|く|ら))|移り住[みん])",
        ),
        (
            r"\1",
            rf"\b(?:my|our) ((?:[\w'-]+ ){{0,3}}(?:birthday|anniversary|hometown)) (?:is|falls on) (?:on )?(.{{2,60}}?){_END}",
        ),
        (r"\1", r"((?:[^\s、。はがを]{1,12}の)?(?:誕生日|記念日))は([^、。！？]{2,30}?)(?:です|だ|[。]|$)"),
        (r"favorite \1", rf"\bmy (?:absolute )?favou?rite ([\w ]{{2,30}}?) (?:is|are|would be) (.{{2,80}}?){_END}"),
        (
            "language",
            r"\b(?:please )?(?:answer|reply|speak|write|talk)(?: to me)? (?:only )?in "
            r"()(japanese|english|french|german|spanish|chinese|korean)\b",
        ),
        ("language", r"()(日本語|英語|中国語|韓国語)版?[でを](?:お願い|答え|返事|返信|回答|書い|説明|話し|対応|読みた|希望)"),
        ("budget", rf"\bmy (?:budget|limit) is ()(.{{2,40}}?){_END}"),
        (
            "budget",
            r"予算[はをが]()([^。、！？]{2,20}?)(?:です|だ|まで|以内|くらい|ぐらい|に(?:変|し|上|下|な|増|減|抑)|で(?:お願|考|す)|[。、]|$)",
        ),
        (r"favorite \1", r"(?:一番|いちばん)?好きな([^\s、。は]{1,12})は([^。、！？]{1,40}?)(?:です|だ|かな|[。、！？]|$)"),
    )
)
"""The key and the value are the groups of a pattern; the key may be given."""

_NOT_BEFORE = re.compile(
    r"\b(?:(?:do|is)(?:n't| not)|not|never|stop|quit|no longer|used to|lived)\b[^.!?]{0,20}\Z", re.IGNORECASE
)
_NOT_AFTER = re.compile(
    r"\A(?:さん)?(?:に[はも]?|と|って)(?:今は?|もう)?(?:(?:住んで|暮らして)い?(?:た(?!い)|ました|ません|ない|なか)|呼ばないで|呼んで(?:ほし|欲し)くな)"
)


def is_so_no_more(statement: str, value: tuple[int, int]) -> bool:
    """Tell whether a name or a home, from one place of a statement to another, is said to be none, or one of the past."""
    start, end = value
    return _NOT_BEFORE.search(statement[:start]) is not None or _NOT_AFTER.match(statement[end:]) is not None


_AMOUNT = r"(?:[$€£¥]\s?\d[\d,.]*|\d[\d,.]*\s?(?:dollars|yen|euros?|pounds|bucks|usd|jpy|円))"

STATED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (slot, re.compile(pattern, re.IGNORECASE))
    for slot, pattern in (
        (
            "budget",
            rf"(?:\b(?:not|never|nothing|cannot)|n't)\b[^.!?]{{0,40}}?\b(?:more than|over|above|beyond|exceed)\s+({_AMOUNT})",
        ),
        ("budget", rf"\b(?:my|our|the) (?:\w+ )?(?:budget|spending limit)\b(?: \w+){{0,4}}? ({_AMOUNT})"),
        (
            "budget",
            rf"(?:\bspend(?:ing)?|\bpay|\bbudget|\bkeep|\bstay|\bnothing|\bprice|\bafford|\bcosts?)\b.{{0,30}}?\b"
            rf"((?:(?<=\bof )|(?<=\bis )"
            rf"|(?:under|below|over|less than|up to|at most|(?:no )?more than|within|around|about|maximum|max)\s+){_AMOUNT})",
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
