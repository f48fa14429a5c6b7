"""Attitude: whether what is said speaks well or ill of something, by evaluating words and their negation. Pure.

One vocabulary tells what a user thinks of a genre, and whether he is content with the shop. The words are stems, so that a
form that nobody listed is known by its kin, and a negation is looked for beside each of them.
"""

from __future__ import annotations

import re

_GOOD = (
    r"(?:love|adore|enjoy|cherish|treasure|admire|appreciat|devour|crave|delight|thrill|excit|gorgeous|beaut|fantastic"
    r"|wonder(?:ful|fully)|brillian|amaz|awesome|excellen|superb|perfect|magnificen|marvel|stunn|charm|captivat|fascinat"
    r"|impress|pleas(?:ant|ed|ure)|satisf|grate|thank|helpful|glad|happ(?:y|i)|joy|comfort|relax|sooth|favou?r(?:ite|ed)"
    r"|lovely|splendid|terrific|obsess|addict|hook|enthusias|passionat|gravitat|recommend(?!ing|ation)|resolv"
    r"|solv|ideal|prefera|superior|heartwarm|cozy|cosy|sublime|exquisit|flawless|outstand|incredibl|remarkabl"
    r"|phenomen|fabulous|immers"
    r"|compell|refresh|uplift|inspir|unwind|calm|help(?=s)|tempt|appeal|attract|convenien|valuab|invaluab"
    r"|effortless|smooth|generous|courte|kind(?:ly|ness)\b"
    r"|patien|polite|welcom|friendl|attentiv|prompt|thorough|reliab|accurat|succeed|success)\w{0,8}"
    r"|cheers?|over the moon|blown away|with (?:such |so much |great )?care|zero hassle|hassle-free"
    r"|(?:guilty )?pleasures?|content|worth (?:it|every)"
    r"|nicer|better|greater|cooler|prettier|on point|top-?notch|first-?rate|next level|speaks? to me"
    r"|grew up (?:on|with)|right up my alley"
    r"|makes? me (?:smile|laugh|feel better)|moves? me|great(?:est|ly)?|best|good|fine|nice|fun|cool|quick(?:ly)?"
    r"|fond of|keen on|into(?= \*)|big on|partial to|drawn to|fans? of|sucker for|soft spot|weakness for|cup of tea|go-?to"
    r"|my (?:thing|jam|style)|works? (?:(?:best|better|well|fine|great) )?for me|works? (?:well|fine|now)|(?:all|any) day"
    r"|good job|(?:ma(?:de|kes?)|saved?|brighten(?:ed|s)) my (?:day|night|evening|morning|week|weekend|month|year|life|trip)"
    r"|gr(?:ew|ow|ows|own|owing) on me|w[io]ns? me over"
    r"|you(?:'re| are) (?:a star|the best|an? \w+ ?saver)|star|masterpiece|gem"
    r"|exactly what i|person|guy|girl|type|reader|lover|collector|hits? the spot|better than (?:i )?\w+"
    r"|arrived early|exceed\w* (?:my |all )?expect\w+|\w+ stars|easier|easy|treat|pleasant|sorted"
    r"|(?<!'d )(?<!would )like(?:d|s)?|nerd|geek|buff"
    r"|up for|no-brainer|keeps? me (?:hooked|glued|awake|going|turning|reading)|hits? home|makes? my day|worth the"
    r"|prefer(?:red|s)?|fancy|love"
)
_BAD = (
    r"(?:hate|hating|detest|loath|despis|dislik|abhor|terribl|awful|horribl|nightmar|scar(?:e[sd]?|y|ing)\b|terrif|frighten"
    r"|creep|disgust|gross|bor(?:e[sd]?|ing)\b|tire(?:d|some)|weary|sick(?:en)?|cring|depress|sadden|upset|annoy|irritat"
    r"|frustrat|disappoint|angr|furious|exhaust|nause|unbear|overrat|dull|tedious|useless|worthless|rubbish|garbage|scam"
    r"|ridicul|unaccept|horrend|appall|pathetic|shame|disgrace|complain|rude|incompet|inconven|confus|unhelpful|unfair"
    r"|mess(?!age|enger)|wast(?:ed?|ing)|overdone|broken|damag|torn|dented|missing|overcharg|stressf|anxi"
    r"|distress|uncomfort|outrag"
    r"|ignor(?:e|ing)|fail|freak|horrif|traumat|disturb|repuls|revolt|grossed|unreadab|insuffer|intolerab"
    r"|sloppy|careless|crash(?!ed into)"
    r"|regret|ruin|soak|crush|crumpl|scratch|stain|mould|mold|smash|defect|fault|glitch|bugg|freez|mislead"
    r"|mistreat|deceiv|cheat|lied|lying"
    r"|overpriced|aggravat|infuriat|miser|dread|hopeless|shambl|nonsense|absurd|unprofessional|inexcus|unreliab"
    r"|inaccur|delay)\w{0,8}"
    r"|stay(?:ing)? (?:away|clear) from|(?:leaves?|left) me cold|(?:puts?|sends?) me to sleep|nothing for me"
    r"|wears? thin|ran out of|out of patience"
    r"|(?:los(?:e|t|ing)|try(?:ing)?|tests?|testing) (?:my )?patience|expected (?:better|more)|joke|blurr\w+"
    r"|smudg\w+|faded|sits? in|sitting in"
    r"|without (?:telling|asking|warning|notice|notif\w+)|isn't what i|not what i|never again|any longer"
    r"|makes? me (?:feel )?(?:so |a bit |really )?(?:queasy|sick|ill|dizzy|nervous|anxious|uneasy|cry|sad|shudder|wince)"
    r"|at my limit|unanswered|canceled on me"
    r"|why (?:is|was|were|are|did|does|has|have|can't|won't|isn't|wasn't) (?:my|nobody|no one|it|you|this"
    r"|there)|(?:two|three|four|\d) (?:e?mails|calls|weeks|months|times)"
    r"|steer clear of|rub\w* me the wrong|not for me|go(?:es)? over my head|hard to (?:follow|read|enjoy"
    r"|get into)|overcharg\w+|expired?"
    r"|(?:on hold|waiting|waited|stuck) for (?:an?|over|\d|\w+ (?:hours?|days?|weeks?))|downhill|(?:creeps?"
    r"|freaks?|grosses|weirds|stress(?:es)?|wears?|tires?)"
    r" me out|instead|pick up the phone|worse|fell apart|falling apart|let (?:me )?down|ripped off|rip-?off"
    r"|how (?:long|many times)|promised"
    r"|worst|bad(?:ly)?|poor(?:ly)?|lousy|fed up|done with|over it|allergic|deal-?breakers?|turn-?offs?|avoid"
    r"|skip|leave \w+ out"
    r"|leaves? out|(?:keep|cut|filter|take) (?:\S+ ){0,3}out|spare me|had enough|enough of|hard pass|pass on"
    r"|grown out of|gave up"
    r"|puts? me off|can(?:'t|not) (?:bear|stand|stomach|take|handle)|stop(?:ped)?|quit|dropp?(?:ed)?|instead of helping"
    r"|count me out"
    r"|too (?!much fun|good|late to)\w+(?: for me)?|(?:charged|billed) (?:me )?twice|money back|refund|late again|no longer"
    r"|wrong (?:book|volume|item|order|one|address|edition)|(?:still|been) waiting|so much for|(?:second|third|fourth) time"
    r"|still (?:no|not|nothing|hasn't|haven't)|angry|lost my|slow(?!-)"
)
_NEGATION = (
    r"not|never|no|zero|hardly|barely|nobody|none|nothing|neither|nor|without|\w+n't|cannot|far from|less than|no longer"
    r"|doesn't|no one"
)
_ENGLISH = re.compile(rf"\b(?:(?P<bad>{_BAD})|(?P<good>{_GOOD}))\b")
_NEGATED = re.compile(
    rf"\b(?:{_NEGATION})\b(?!\s(?:\w{{1,8}}\s)?(?:so|this|such|more|as)\b)(?:[^\w,;:.!?]{{1,3}}[\w']{{1,15}}){{0,3}}?[^\w,;:.!?]{{1,3}}\Z"
)
_SETTLED_GOOD = re.compile(
    r"\b(?:can(?:'t|not) (?:resist|live without|help but|do without|put \w+ down|stop reading)"
    r"|couldn't (?:put \w+ down|resist|stop)|never (?:(?:an? |gets? |got |felt )?(?:dull|boring|bored)|tires?\b|bores?)"
    r"|nothing (?:beats|like|better|tops)|can(?:'t|not) (?:get enough|go wrong|wait)|couldn't (?:be|have been|ask for)"
    r"(?: an?y?)? ?(?:happier|better|more)\w*|never (?:disappoints?|gets? old|tired? of|fails? to)|no complaints?|not bad"
    r"|can't complain|not? (?:a )?problem|not only)\b"
)
"""What speaks well in negative words."""
_EVENTS = (
    r"(?:arriv|answer|repl(?:y|ie)|respond|respons|work|com(?:e|ing)|help|deliver|load|open|ship|find|found|fix|chang|listen"
    r"|car(?:e|ing)|show|show(?:n|ed) up|get through|reach|pick(?:s|ed)? up|turn(?:s|ed)? up|explain|understand"
    r"|parcel|package|refund|tracking|recommend)\w{0,5}"
)
_WITHHELD = re.compile(
    rf"\b(?:nobody|no one|nothing|(?:has|have|did|do|does|is|was|wo|would|ca|could)(?:n't| not)|never|not)\b"
    rf"(?! (?:need|have to|want|know|mind|sure))(?:\W{{1,2}}(?!to\b)[\w']{{1,15}}){{0,2}}?\W{{1,2}}{_EVENTS}\b"
)
"""What should have happened and did not: told of by whoever serves, it is a complaint."""

_WISHED = re.compile(
    r"(?P<asked>(?:\bwould|'d|\bwill) (?:(?:be|really|greatly|very|much|so|also|most) ){0,3}(?:appreciate|grateful|thankful"
    r"|nice|great|good|happy|glad|love|like|helpful|wonderful|lovely)(?: it)? if\b[^.!?;]*)"
    r"|\b(?:(?:was|were|been|had|have) hop(?:ed|ing) (?:for|that|to)|(?:i|we) (?:really |just |do )?wish(?:ed)?"
    r"|(?:would|could|should|might) have)\b[^.!?;]*"
)
"""What is asked for politely, and what was hoped for: its good words are of what is not, or not yet."""
_FOR_ONCE = re.compile(r"\b(?:next time|for once|finally|actually|in (?:the )?future|from now on)\b")
_IRONIC = re.compile(
    r"\bthank(?:s| you)(?: so much| very much| a lot)? for (?:nothing(?! (?:less|but|else))|(?:\w+ly )?(?:ignor|wast|ruin|los"
    r"|break|damag|forgett|cancell?|mess|rush|delay)ing)\b[^.!?;]*|\b(?:much|a lot) to be desired\b"
)
"""Thanks for what was no service, and such words."""

_GOOD_JAPANESE = (
    r"(?:ないと|なければ|なきゃ)[、]?[^、。]{0,10}(?:ない|ません)|(?:外れ|ハズレ|はずれ|間違い|文句|申し分"
    r"|不満)[がはの]?(?:ない|無い|なし|ありません)"
    r"|性に合[うっい]|落ち着[きく](?!ませ|な)|目が(?:ない|無い|なく|なさ|なくて|ありません)|(?:止ま|とま|たま"
    r"|堪|やめられ|止められ|手放せ|欠かせ|見逃せ|外せ|離せ|飽き|我慢でき)(?:らな|りま|な|ま)(?:い|くて|せん)|大?好き|大好物|好物"
    r"|好み|最高|素晴らし|すばらし|完璧|満足|感動|感謝|ありがと|嬉し|うれし|助かり|助かっ|楽し|面白|おもしろ"
    r"|よかった|良かった|気に入|お気に入り|さすが|期待以上|解決(?:しまし|でき)|思いませんでした、|びっくりです"
    r"|至福|オタク|マニア|愛好|うっとり|泣ける|推せ|沼|語れ|詳しくて|得意|親切|驚きました|また(?:利用|買"
    r"|お願いし|来)|わかりやす|分かりやす|見やす|使いやす|読みやす|笑顔|心(?:が|に)(?:温|響|沁|残)|ほっこり"
    r"|幸せ|安心|信頼|素敵|すてき|綺麗|きれい|美し"
    r"|快適|便利|趣味|生きがい|たまらな|やみつき|熱く|熱い|期待通り|文句なし|文句の付けよう|丁寧で|癒|わくわく"
    r"|ワクワク|どきどき|ドキドキ|きゅん|キュン|惹かれ|魅力|夢中|虜|とりこ"
    r"|はま(?:り|っ)|ハマ(?:り|っ)|大?ファン|憧れ|推し|愛(?:読|し)|元気が出|泣け|燃え|なら何でも|一番(?:好|いい"
    r"|良)|がいい|が良い|(?:ほう|方)がいい|悪くな|迅速"
)
_BAD_JAPANESE = (
    r"もう[^、。]{0,12}(?:十分|充分|結構|いい)(?:です|\Z)|嫌|きらい|苦手|無理|飽き|もういい|結構です|うんざり"
    r"|食傷|どうでも(?:い|よ)|勘弁|避け|やめ(?:て|と|た)|卒業|寒|つら|辛い|怖|こわ|退屈|眠く|しんど|疲れ|不快|気持ち悪|ダメ|だめ"
    r"|駄目"
    r"|控え|抜き|なしで|以外|いら(?:な|ん)|要らな|お腹いっぱい|ちょっと(?:…|\.\.|ね|\Z)|ピンと(?:こ|来)(?:な"
    r"|ま)|シミ|染み|傷|キズ|たらい回し|限界|信じられな|勝手に|全然違|説明と違|冗談じゃ|放置|無視|ありえな"
    r"|有り得な|納得い|挫折|ついてい[けか](?:な|ませ)|萎え|熱が冷め|抵抗が|ハードルが高|遠慮|最悪|最低|ひど"
    r"|酷い|残念|困(?:り|って|る)|怒|苦情"
    r"|返金|不満|がっかり|壊れ|破れ|破損|汚れ|折れ|遅い|遅す|遅れ|間違|違う(?:商品|巻|本|もの|色|サイズ)"
    r"|対応が悪|使いにく|わかりにく|分かりにく|敬遠|心が痛|胸が苦し|苦痛|重すぎ|暗すぎ|難し|むずかし|つぶれ"
    r"|潰れ|濡れ|質が低|お金を取|時間がかか|話が違|損|騙|だまさ|後悔|不親切|不便|不安|不快|ぼったく|高すぎ|雑"
    r"|呆れ|あきれ|ムカ|許せ|いい加減|腹が立|迷惑|二度と"
    r"|話にな|失望|不良|イライラ|いらいら|二重に|が悪(?:い|く|か)|どうなって|おかしい"
)
_JAPANESE = re.compile(rf"(?P<bad>{_BAD_JAPANESE})|(?P<good>{_GOOD_JAPANESE})")
_NEGATED_AFTER = re.compile(
    r"\A[^、。,.!?]{0,6}?(?:ない(?!と)|ません|なかった|じゃな|ではな|でもな|ありませ)(?!か[。？?]|でしょう|こと|なら)"
)
_WITHHELD_JAPANESE = re.compile(
    r"(?:届|来|着|返事が|連絡|返信|返信が|回答が|連絡が|返答が|反応が|動|開|つなが|繋が|見つから|表示さ|使|読"
    r"|直|治|納得(?:で|の)|役に立|説明が|終わら|進ま|よく|良く|読み込|合わ|興味[がは]?"
    r"|価値が|内容が|響か|刺さら|入り込|共感(?:で|が)|頭に入)[^、。,.!?]{0,4}?(?:ない|無い|ません|なかった|ず(?:に|、))"
)


_WISHED_JAPANESE = re.compile(
    r"(?P<asked>(?:次回|今度|次から)?[^、。！？]{0,30}?(?:いただけ|頂け|もらえ|くださ|下さ|くれ)[るいれまた]{0,3}(?:と|ら|ば)"
    r"(?:とても|大変|本当に)?(?:助か|嬉し|うれし|ありがた|幸い)[^、。！？]*)"
    r"|て(?:ほし|欲し)かった|(?:ければ|であれば)(?:よ|良)かった|だと(?:よ|良)かったの"
    r"|(?:期待|思|想像|予想|聞|言|評判|写真|説明)[^、。！？]{0,8}ほど[^、。！？]{0,10}(?:な(?:い|かった)|ません)"
)
_FOR_ONCE_JAPANESE = re.compile("次回|今度|次から")


_SETTLED_BAD = ("二度と", "な", "ま", "い")
"""Endings of what speaks ill with a negation in it, or with one to come."""


def attitude(text: str) -> int:
    """Return how much better than ill a text speaks: above 0 well, below 0 ill, 0 neither.

    Args:
        text: A sentence or a clause, in English or Japanese, without the names of things: *horror* is no complaint.
    """
    lower = text.replace("\u2019", "'").lower()
    score = len(_SETTLED_GOOD.findall(lower))
    lower = _SETTLED_GOOD.sub(" ", lower)
    score -= len(_IRONIC.findall(lower))
    lower = _IRONIC.sub(" ", lower)
    for match in _WISHED.finditer(lower):
        score -= (_FOR_ONCE if match["asked"] else _ENGLISH).search(match[0]) is not None
    lower = _WISHED.sub(" ", lower)
    score -= len(_WITHHELD.findall(lower))
    lower = _WITHHELD.sub(" ", lower)
    for match in _ENGLISH.finditer(lower):
        is_not = _NEGATED.search(lower[max(0, match.start() - 60) : match.start()]) is not None
        if match["good"]:
            score += -1 if is_not else 1
        else:
            score -= not is_not
    return score if lower.isascii() else score + _japanese(lower)


_UNOPPOSED = re.compile(r"(?:\b(?:not|never)|n't) (?:really |particularly )?(?:against|mind|opposed|averse)\b")


def evaluates(text: str) -> bool:
    """Tell whether a text holds an evaluating word, be it negated: who does not hate a thing takes no side by that."""
    lower = text.replace("\u2019", "'").lower()
    return (
        _UNOPPOSED.search(lower) is not None
        or _ENGLISH.search(lower) is not None
        or (not lower.isascii() and _JAPANESE.search(lower) is not None)
    )


def _japanese(text: str) -> int:
    score = 0
    for match in _WISHED_JAPANESE.finditer(text):
        score -= not match["asked"] or _FOR_ONCE_JAPANESE.search(match[0]) is not None
    rest = _WISHED_JAPANESE.sub("\u3000", text)
    score -= len(_WITHHELD_JAPANESE.findall(rest))
    rest = _WITHHELD_JAPANESE.sub("\u3000", rest)
    for match in _JAPANESE.finditer(rest):
        is_not = _NEGATED_AFTER.match(rest[match.end() : match.end() + 14]) is not None
        if match["good"]:
            settled = match[0].endswith(("い", "せん", "くて", "さ", "なく", "なし"))
            score += -1 if is_not and not settled else 1
        else:
            score -= not is_not or match[0].endswith(_SETTLED_BAD)
    return score
