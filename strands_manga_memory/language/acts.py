"""Dialogue acts: what a message does in the conversation, read from its words, in English and Japanese.

The rules are data: small regular expressions, tried in a fixed order. They are plain and quick (some ten microseconds a
message) and know nothing of the conversation around the message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class DialogueAct(StrEnum):
    """What a message does."""

    PREFERENCE = "preference"
    CORRECTION = "correction"
    RECOMMENDATION = "recommendation"
    ACKNOWLEDGEMENT = "acknowledgement"
    GREETING = "greeting"
    FAREWELL = "farewell"
    UNMATCHED = "unmatched"


@dataclass(frozen=True)
class Rule:
    """One act, who performs it, and words it is known by.

    Attributes:
        act: The act.
        role: ``"user"`` or ``"assistant"``.
        cues: At least one of them must be in the text (as a word in English, anywhere in Japanese) before ``pattern`` is
            tried. They only save time.
        pattern: Searched in the text in lower case.
    """

    act: DialogueAct
    role: str
    cues: frozenset[str]
    pattern: re.Pattern[str]


def _rules(act: DialogueAct, role: str, *rows: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple(Rule(act, role, frozenset(cues.split()), re.compile(pattern)) for cues, pattern in rows)


_ADVERBS = (
    r"(?: (?:really|absolutely|just|also|still|always|never|usually|mostly|only|much|kinda|do|don't|do not|definitely"
    r"|generally))*"
)

ENGLISH: tuple[Rule, ...] = (
    *_rules(
        DialogueAct.PREFERENCE,
        "user",
        (
            "prefer prefers preferred preference preferences favorite favorites favourite favourites allergic spoilers",
            r"\b(?:prefer(?:s|red|ence|ences)?|favou?rites?|allergic|no spoilers)\b",
        ),
        (
            "love like enjoy adore hate dislike avoid detest collect",
            rf"\b(?:i|we)(?:'d)?(?: would)?{_ADVERBS} "
            r"(?:love(?! to)|like(?! to| you)|enjoy|adore|hate|dislike|avoid|detest|collect)\b",
        ),
        (
            "fan into fond tired sick vegan vegetarian",
            r"\bi(?:'m| am)(?: \w+){0,2} (?:fan of|into|fond of|tired of|sick of|vegan|vegetarian)\b",
        ),
        (
            "always never usually mostly only",
            r"\bi (?:always|never|usually|mostly|only) (?:read|buy|want|use|watch|get|go|eat|choose|pick)\b",
        ),
        ("stand", r"\bcan(?:'t|not) stand\b"),
        ("rather", r"\b(?:i'd|i would|we'd) rather\b|\brather not\b"),
        ("please", r"\bplease (?:always|never|only|don't|do not|keep|avoid)\b"),
        ("budget limit", r"\bmy (?:budget|limit) is\b"),
        ("now", r"\bfrom now on\b"),
    ),
    *_rules(
        DialogueAct.CORRECTION,
        "user",
        (
            "no nope nah wait sorry oops hold hmm",
            r"\A(?:no|nope|nah|wait|sorry|oops|hold on|hmm,? no)\b[,.! ]"
            r"(?! ?(?:thank|problem|worries|that(?:'s| is| will be) (?:all|it|everything)))",
        ),
        (
            "meant mean said asked not scratch correction thought misunderstood misunderstand",
            r"\bi (?:actually )?(?:meant|mean|said|asked for)\b|\bnot what i\b|\bscratch that\b|\bcorrection\b"
            r"|\bon second thought\b|\bmisunderst(?:and|ood)\b"
            r"|\b(?:that|it|this)(?:'s| is| was) not (?:right|correct|what|the)\b",
        ),
        (
            "wrong incorrect mistake mistaken",
            r"\b(?:that|it|this)(?:'s| is| was) (?:wrong|incorrect|a mistake|the wrong)\b"
            r"|\byou(?:'re| are|'ve| have)? (?:got (?:it|that|me) wrong|wrong|mistaken)\b",
        ),
        ("actually instead", r"\b(?:actually|instead)\b"),
        (
            "change switch correct update make",
            r"\b(?:change|switch|correct|update) (?:it|that|this|the|my)\b|\bmake (?:it|that) (?!up|out|sure)\w+",
        ),
    ),
    *_rules(
        DialogueAct.RECOMMENDATION,
        "assistant",
        (
            "recommend recommended recommends recommendation recommendations suggest suggested suggests suggestion suggestions",
            r"\b(?:recommend|suggest)",
        ),
        ("pick picks worth", r"\btop picks?\b|\bmy pick\b|\bworth (?:reading|a try|a look)\b"),
        ("how what why", r"\b(?:how|what) about\b|\bwhy not (?:try|start)\b"),
        ("perfect great", r"\bperfect (?:for|match)\b|\bgreat (?:choice|fit) (?:for|if)\b"),
        (
            "like love enjoy try consider check",
            r"\byou(?: might| may| could| should| would| will|'d|'ll)(?: also| really| probably)* "
            r"(?:like|love|enjoy|try|consider|check|want to (?:try|read|check))\b|\bconsider (?:trying|reading|the)\b",
        ),
        ("tried read considered seen", r"\b(?:have you|did you) (?:tried|try|read|considered|seen)\b"),
    ),
)

JAPANESE: tuple[Rule, ...] = (
    *_rules(
        DialogueAct.CORRECTION,
        "user",
        (
            "違 ちが じゃ なく 間違 訂正 やっぱ 正しくは 取り消 言い直",
            r"違(?:い|う|っ)|ちが(?:い|う|っ)|そうじゃな|(?:では|じゃ)なく(?:て|、)?|間違|訂正|やっぱり?|勘違い|正しくは|取り消|言い直",
        ),
        ("いや いえ いいえ", r"\A(?:いや|いえ|いいえ)[、,。 ]."),
        ("変更 方でした ほうでした", r"(?:に|を|へ)変更|の方でした|のほうでした"),
    ),
    *_rules(
        DialogueAct.PREFERENCE,
        "user",
        (
            "好 推し 嫌い 苦手 お気に入り",
            r"好き(?!です[か?？])|大好|好み|好ん|お気に入り|推し|嫌い|苦手",
        ),
        ("方が ほうが", r"(?:の方|のほう|方|ほう)が(?:いい|良い|よい|嬉し|うれし)"),
        ("派 ハマっ はまっ 興味 ファン", r"派(?:です|なん|だ)|ハマっ|はまっ|興味が|ファンです"),
        ("集め 収集 アレルギー 予算 以内", r"(?:集め|収集し)て|アレルギー|予算は|以内(?:で|が)"),
        ("避け しないで ネタバレ 読まない 希望", r"避けた|避けて|しないで|ネタバレ|読まない|希望(?:です|し)"),
        (
            "だけ のみ いつも",
            r"(?:だけ|のみ)(?:読|買|で(?:いい|お願)|に(?:して|し))|いつも.{0,12}(?:読|買|注文|頼|選)",
        ),
    ),
    *_rules(
        DialogueAct.RECOMMENDATION,
        "assistant",
        ("すす スス 勧め 薦め", r"(?:お|オ)(?:すす|スス|勧|薦)(?:め|メ)"),
        ("いかが どうで", r"いかがでしょう|いかがですか|どうでしょう|はどうですか"),
        ("ぴったり ピッタリ 提案 人気", r"ぴったり|ピッタリ|ご提案|提案し|人気(?:が|の|です)"),
        (
            "気に入 楽しめ 試して 読んで",
            r"気に入(?:る|って)(?:と思|いただ|もらえ)|楽しめ(?:る|ます)|(?:試|読ん)(?:し)?(?:て|で)みて",
        ),
    ),
)

_ENGLISH_CUES = frozenset().union(*(rule.cues for rule in ENGLISH))

_SET_PHRASES: tuple[tuple[DialogueAct, re.Pattern[str]], ...] = (
    (
        DialogueAct.FAREWELL,
        re.compile(
            r"\b(?:good ?bye|bye(?:[ -]bye)?|take care|farewell|good ?night|until next time|talk to you (?:later|soon)"
            r"|see (?:you|ya)(?: (?:later|soon|again|next time|tomorrow|then))?"
            r"|(?:have|enjoy) (?:a|your|the rest of your)(?: very)?(?: (?:nice|great|good|lovely|wonderful|pleasant))?"
            r" (?:day|one|evening|night|time|trip|weekend|stay|afternoon|reading))\b"
            r"|さようなら|さよなら|またね|じゃあ?ね|じゃあ?また|(?:では|それでは)、?また(?:今度|明日|来ます|お願いします|ね)?"
            r"|失礼(?:し|いた|致)\w+|おやすみ(?:なさい)?|バイバイ|また(?:の)?ご(?:利用|来店)\w*|お待ちしております"
        ),
    ),
    (
        DialogueAct.GREETING,
        re.compile(
            r"\b(?:hi+|hello+|hey+|hiya|howdy|greetings|(?<!re )welcome(?: back| to [\w' ]{1,24})?|nice to meet you"
            r"|good (?:morning|afternoon|evening)|how are (?:you|things)(?: doing)?(?: today)?|how(?:'s it| is it) going"
            r"|how (?:can|may|could) (?:i|we) (?:help|assist|be of (?:help|service))(?: you)?(?: with)?(?: today| out| now)?"
            r"|what can i (?:do for|help) you(?: with)?(?: today)?)\b"
            r"|こんにち[はわ]|こんばん[はわ]|おはよう(?:ございます)?|はじめまして|初めまして|もしもし|やあ|いらっしゃいませ|ようこそ"
            r"|どうも|お世話になっ(?:て|ております|ています)|よろしくお願い(?:します|いたします|致します)"
            r"|何かお(?:探し|手伝い)\w*(?:ですか|でしょうか|しますか|しましょうか)"
            r"|(?:本日は|今日は)?どのような\w*(?:でしょうか|ですか)"
        ),
    ),
    (
        DialogueAct.ACKNOWLEDGEMENT,
        re.compile(
            r"\b(?:ok(?:ay)?|k|sure(?: thing)?|thanks?(?: (?:you|so much|a lot|again|very much|a bunch))*|much appreciated"
            r"|great|got it|gotcha|yes|yeah|yep|yup|uh-?huh|right|sounds? (?:good|great|perfect|nice)|perfect|alright|all right"
            r"|cool|fine|nice|awesome|good|excellent|wonderful|amazing|fantastic|i see|exactly|understood|noted|will do"
            r"|you(?:'re| are) (?:very |most )?welcome|my pleasure|no problem|no worries|of course|certainly|absolutely"
            r"|that(?:'s| is| will be| would be)? ?"
            r"(?:all|it|everything|great|good|fine|perfect|nice|right|correct|helpful|works?)"
            r"(?: (?:for (?:now|me|today)|i need(?:ed)?|then))?|no(?=[, ]+that)|correct|agreed"
            r"|(?:i )?appreciate (?:it|that|your help)|(?:glad|happy) (?:to help|i could help))\b"
            r"|かしこまりました|承知(?:し|いた|致)\w+|了解(?:です|しました|いたしました)?|(?:わか|分か)(?:りました|った)"
            r"|ありがとう(?:ございま(?:す|した))?|なるほど|そうですね|そうです|そうなんですね|いいですね|いいね|どういたしまして"
            r"|助かり(?:ます|ました)|大丈夫(?:です)?|結構です|お願いします|はい|ええ|うん|オーケー|オッケー|完璧(?:です)?"
            r"|すごい(?:です)?|素晴らしい(?:です)?|嬉しい(?:です)?|以上です|もちろんです|問題(?:ありません|ないです)"
        ),
    ),
)

_FILLER = re.compile(
    r"\b(?:there|again|everyone|all|team|so|very|much|just|then|now|well|oh|ah|and|for|your|the|my|help|too|today|friend|please"
    r"|it|that|a|lot|sir|madam|really)\b"
    r"|とても|本当に|どうぞ|では|それで|これで|お手数|ご(?:案内|確認|対応|返信)|早速|です|ます|ね|よ|で"
)
_NOT_IN_WORDS = {code: " " for code in range(128) if not chr(code).isalpha() and chr(code) != "'"}
_WORD_OR_CHARACTER = re.compile(r"[a-z0-9']+|[\u3040-\u30ff\u3400-\u9fff]")

_LONGEST_SET_PHRASE = 120
"""A text of more characters has more to say than a greeting or thanks."""

_HEAD, _TAIL = 600, 200
"""Of a long text only so many characters of its beginning and its end are read."""


def dialogue_act(text: str, role: str) -> DialogueAct:
    """Say what a message does.

    A greeting, farewell or acknowledgement is one only if nearly nothing else is said: "Hi, do you have volume 12?" is a
    question. Of a text over 800 characters only the first 600 and the last 200 are read.

    Args:
        text: The text of the message.
        role: ``"user"`` or ``"assistant"``; preferences and corrections come from users, recommendations from assistants.

    Returns:
        The act, ``DialogueAct.UNMATCHED`` if no rule knows it.
    """
    text = text.strip()
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    text = text.lower().replace("\u2019", "'")
    if len(text) <= _LONGEST_SET_PHRASE and (act := _set_phrase(text)):
        return act
    if not text.isascii():
        for rule in JAPANESE:
            if rule.role == role and any(cue in text for cue in rule.cues) and rule.pattern.search(text):
                return rule.act
    words = _ENGLISH_CUES.intersection(text.translate(_NOT_IN_WORDS).split())
    for rule in ENGLISH if words else ():
        if rule.role == role and not words.isdisjoint(rule.cues) and rule.pattern.search(text):
            return rule.act
    return DialogueAct.UNMATCHED


def _set_phrase(text: str) -> DialogueAct | None:
    """Return the act of a text that is made of set phrases and nearly nothing else."""
    found: DialogueAct | None = None
    rest = text
    for act, pattern in _SET_PHRASES:
        rest, hits = pattern.subn(" ", rest)
        if hits and found is None:
            found = act
    if found is None:
        return None
    left = len(_WORD_OR_CHARACTER.findall(_FILLER.sub(" ", rest)))
    allowed = 0 if "?" in rest or "？" in rest else 1 if text.isascii() else 2
    return found if left <= allowed else None
