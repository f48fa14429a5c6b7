"""Standing instructions: how the user wants to be answered from now on, and what takes one back; English and Japanese.

They are known by their form: an order to whoever answers ("write ...", "you should ...", 〜てください) that forbids, that
speaks of every time (always, from now on, 毎回), or of how answers are to be: their length, tone, language, form. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from strands_manga_memory.language.acts.act_rules import DialogueAct, Rule, rules
from strands_manga_memory.language.search import search_terms

_CLAUSE = r"(?:\A|[.!?;:,\n]\s{0,3})"
_SENTENCE = r"(?:\A|[.!?\n]\s{0,3})"
_FILLER = (
    r"(?:(?:please|also|and|so|but|ok|okay|oh|now|just|kindly|only|if possible|one more thing|by the way|hi|hey|hello)\b"
    r"[,:]? ?){0,4}"
)
_ASKED = (
    r"(?:remember to|make sure (?:to|you|that you)|be sure to|try to|(?:could|can|would|will) you(?: please)?"
    r"|you (?:should|must|need to|have to|ought to)|i(?:'d| would)? (?:want|need|like|prefer|expect) you to"
    r"|i(?:'d| would) (?:like|prefer|appreciate|love) (?:it )?if you(?: could| would)?|please)(?: please)? "
)
_ORDER = rf"{_CLAUSE}{_FILLER}(?:{_ASKED})?"
_NOT_AN_ORDER = (
    r"(?!(?:mind|again|too|heard|seen|ever|better|tried|knew|thought|said|been|had|has|have|was|were|is|are|fear|happen|once"
    r"|a|an|the|in|on|at|so|as|with|good|great|nice|happy|glad|welcome|one|my|there|will|would|could|can|did|does|i|we|you|he"
    r"|she|it|they|up|here|more|quit|give up|let|\w+(?:ed|ing|ly|s))\b)"
)
_SAY = (
    r"(?:answer|reply|respond|write|format|explain|use|include|cite|speak|talk|number|phrase|spell|present|put|add|give|show"
    r"|provide|describe|translate|structure|organize|convert|express|state|mention|list|address|ask|tell|say|suggest|recommend"
    r"|offer|assume|treat|call|refer to|repeat|quote|summarize|remind|warn|check|start|begin|end|finish|sign|round)"
)
_SAYING = (
    r"(?:using|including|mentioning|asking|suggesting|recommending|apologi[sz]ing|repeating|saying|adding|giving|calling"
    r"|showing|telling|writing|talking|answering|offering|sending)"
)
_FORM = (
    rf"(?:{_SAY}|keep|be|make|limit|avoid|skip|leave out|refrain from|stick to|drop|omit|stay|no(?! ?,)|without|don't|do not"
    r"|stop|never|always)"
)
_ANSWER = (
    r"(?:answers?|repl(?:y|ies)|responses?|messages?|explanations?|recommendations?|suggestions?|summar(?:y|ies)|outputs?)"
)
_HOW = (
    rf"(?:(?:your|all|each|every|any) (?:future |own |single )?(?:{_ANSWER}|tone|writing|sentences?|claims?)"
    rf"|(?:per|in|to) (?:an? |each |every )?{_ANSWER}|at a time|(?:answers|replies|responses)"
    r"|bullet(?:s|ed)?(?:[- ]points?| lists?)?|markdown|emojis?|emoticons?|slang|jargon|metric|imperial|celsius|fahrenheit"
    r"|plain (?:text|english|language)|(?:british|american|simple|formal|everyday) (?:english|spelling|language|words)"
    r"|code blocks?|fenced|headings|spoilers?|citations?|sources?|disclaimers?|apologi[sz]\w*|flattery|small talk"
    r"|technical terms|abbreviations|acronyms|contractions|exclamation (?:marks|points)|passive voice|(?:lower|upper)[- ]?case"
    r"|(?:formal|informal|casual|friendly|neutral) (?:tone|language|style|register)|(?:as if|as though|like) i(?:'m| am| was"
    r"| were)\b|follow-?up question|\d\d-hour"
    r"|(?:under|below|at most|fewer than|less than|no more than|up to|within|in|to) (?:\d{1,4}|one|two|three|four|five|ten"
    r"|a few) (?:words?|sentences?|lines?|paragraphs?|characters?|bullets?|bullet points))"
)
_EVERY_TIME = (
    r"(?:from (?:now|here|this point) (?:on(?:wards?)?|forward)|going forward|henceforth|from here on out|for the (?:rest"
    r"|remainder) of (?:this|our|the) (?:conversation|chat|session|dialog\w*|talk|discussion)|until (?:i|we) (?:say|tell you"
    r"|ask)|(?:every|each) time(?= (?:i|you)\b|[.!]|\Z)|whenever (?:i|you)|when(?:ever)? (?:i ask|you (?:answer|reply|respond"
    r"|recommend|suggest|list|mention|write|explain|quote|refer|name|describe|talk|give|show))|at all times"
    rf"|(?:in|with|throughout) (?:all|every|each)(?: of)?(?: your)? {_ANSWER}|(?:any|all|every) \w+ (?:that )?you (?:give|make"
    r"|send|tell|write|show))"
)
_OFTEN = (
    rf"(?:(?:when|if|before|after) (?:{_SAYING}|you (?:answer|reply|respond|recommend|suggest|list|mention|write|explain|give"
    r"|show|are asked|(?:are|'re) (?:not sure|unsure)|aren't sure|don't know)|i (?:ask|say|mention|paste|send|request|write)))"
)

STANDING = rules(
    DialogueAct.INSTRUCTION,
    "user",
    ("always never ever", rf"{_ORDER}(?:always|never|(?:don't|do not) ever) {_NOT_AN_ORDER}[a-z]{{2,}}"),
    (
        "don't not stop avoid never quit",
        rf"{_ORDER}(?:don't|do not|not|never) {_SAY} (?!(?:up|that|it|this|so|anything|a word|me (?:you|it|that|he|she|they"
        rf"|about|what)|him|her|them|mom|dad|us)\b)\w|{_ORDER}(?:stop|avoid|quit|no more) {_SAYING}\b",
    ),
    (
        "now here point forward henceforth rest remainder until all every each time whenever when times throughout any",
        rf"{_SENTENCE}{_FILLER}(?:{_ASKED}|(?={_FORM}\b))[^.!?\n]{{0,160}}\b{_EVERY_TIME}"
        rf"|{_SENTENCE}{_FILLER}{_EVERY_TIME}(?:,? {_FILLER}(?:{_ASKED}|{_FORM}\b)|[^.!?\n]{{0,80}}, ?{_FILLER}(?:{_ASKED}"
        rf"|{_FORM}\b))",
    ),
    ("when if before after", rf"{_SENTENCE}{_FILLER}{_OFTEN}[^.!?\n]{{0,80}}, ?{_FILLER}(?:{_ASKED})?{_FORM}\b"),
    (
        "answer reply respond write format explain use keep include cite end start begin finish speak talk number limit avoid"
        " phrase spell present skip leave refrain no stick be make put add give show provide describe translate drop without"
        " structure organize convert express state mention list address sign omit don't do stop",
        rf"{_ORDER}{_FORM}\b[^.!?\n]{{0,80}}?\b{_HOW}\b",
    ),
    (
        "your answer answers reply replies response responses message messages explanations suggestions recommendations tone",
        rf"\b(?:your|all|each|every)(?: of)?(?: your)? (?:{_ANSWER}|tone) (?:to be|should|must|needs?|has to|have to|shouldn't"
        r"|mustn't|ought to|(?:is|are) (?:too|to be))\b",
    ),
    (
        "keep be make stay",
        rf"{_ORDER}(?:keep|be|make|stay)\b[^.!?\n]{{0,40}}\b(?:concise|brief|short|succinct|to the point|formal|polite|informal"
        r"|casual|simple|neutral|objective|consistent|blunt|direct)\b(?=[^.!?\n]{0,40}(?:[.!\n]|\Z))",
    ),
    ("refer", rf"{_ORDER}refer to [^.!?\n]{{1,60}}\bas\b"),
    (
        "no only most up",
        rf"{_ORDER}(?:no more than|at most|up to|no|one|\d{{1,3}})\b[^.!?\n]{{0,40}}\b(?:at a time|each time|per {_ANSWER})\b",
    ),
)

_SAY_JAPANESE = (
    r"(?:勧め|薦め|すすめ|提案し|紹介し|言わ|使わ|書か|聞か|教え|出さ|触れ|話さ|答え|繰り返さ"
    r"|載せ|付け|つけ|入れ|含め|省か|略さ|謝ら)"
)
_HOW_JAPANESE = (
    r"(?:敬語|タメ口|ため口|丁寧語|です・?ます|口調|語尾|言葉(?:遣|づか)い|箇条書き|絵文字|顔文字|標準語|関西弁|ふりがな|フリガナ"
    r"|(?:返事|返答|返信|回答|答え|説明|文章?|要約|紹介)は|(?:に|で|から|く|て)(?:返事|返答|返信|回答|答え)"
    r"|(?<![0-9０-９一二三四五六七八九十百千])[0-9０-９一二三四五六七八九十百千]+(?:文字|字|行|文|語)(?:以内|まで|程度)?(?:で|に)"
    r"|(?:おすすめ|お勧め|候補|提案|選択肢)は[^。\n]{0,8}(?:まで|ずつ)"
    r"|西暦|和暦|(?:税込|税抜|税別|送料込)み?(?:価格|表示|金額)?(?:で|に)|専門用語|略語|ネタバレ|結論(?:から|を)|マークダウン|表形式"
    r"|番号を(?:付|つ)け|出典|情報源|呼び方|敬称|前置き|お世辞|簡潔|手短|短めに|わかりやすい言葉|やさしい(?:言葉|日本語)"
    r"|(?:分|わ)からない(?:こと|とき|時|場合)|さん付け|ちゃん付け)"
)
_LANGUAGE_JAPANESE = r"(?:日本語|英語|中国語|韓国語)で(?:の)?(?:答え|回答|返事|返答|返信|返し|話し|説明|対応)"
_EVERY_TIME_JAPANESE = (
    r"(?:これから(?:は|も|ずっと|、)|今後(?:は|も|の|、)?|(?<![0-9０-９時日月])(?:以降|以後)(?:は|も|、)|毎回|毎度|常に|必ず|絶対に|二度と"
    r"|次から|次回から|この先|(?:言う|答える|説明する|紹介する|書く|勧める|薦める|提案する|話す|挙げる|伝える|返す|教える)"
    r"(?:とき|時|際|たび|場合)(?:に?は|に)|(?:すべて|全て|全部)の(?:回答|返事|質問)"
    r"|(?:回答|返事|返信|文|メッセージ)の(?:最後|最初|冒頭|末尾|終わり))"
)
_ORDER_JAPANESE = (
    r"(?:(?:て|で)(?:くだ|下)さい|(?:て|で)(?:ほし|欲し)い|(?:て|で)(?:もらえ|くれ|いただけ|頂け)|お願い(?:し|いた|致|でき|。|\Z)|で頼"
    r"|ように(?:して|お願い|。|\Z)|(?:る|ない)こと(?:。|\Z)|(?:て|で)(?:いい|良い|ok|大丈夫)(?:よ|です|から|。|\Z)"
    r"|(?:は|も)(?:いら|要ら)(?:ない|ません)|(?:は|も)(?:不要|禁止|なし|無し|ng|やめて|控えて)|(?:に|で)(?:しろ|答えろ|書け|話せ|よろしく)"
    r"|(?:て|で)(?:ね|よ)?(?:。|、|\Z))"
)

STANDING_JAPANESE = rules(
    DialogueAct.INSTRUCTION,
    "user",
    (
        "敬語 タメ口 ため口 丁寧 です 口調 語尾 言葉 箇条書き 文字 標準語 関西弁 ふりがな フリガナ 返事 返答 返信 回答 答え"
        " 説明 文 要約 紹介 字 行 語 おすすめ お勧め 候補 提案 選択肢 西暦 和暦 税 送料 用語 略語 ネタバレ 結論 マークダウン"
        " 表形式 番号 出典"
        " 情報源 呼び方 敬称 前置き お世辞 簡潔 手短 短め やさしい からない 付け",
        rf"{_HOW_JAPANESE}[^。！？?\n]{{0,40}}{_ORDER_JAPANESE}|{_LANGUAGE_JAPANESE}[^。！？\n]{{0,20}}{_ORDER_JAPANESE}",
    ),
    (
        "これから 今後 以降 以後 毎回 毎度 常に 必ず 絶対に 二度と 次から 次回から この先 とき 時 際 たび 場合 すべて 全て 全部"
        " 最後 最初 冒頭 末尾 終わり",
        rf"{_EVERY_TIME_JAPANESE}[^。！？?\n]{{0,60}}{_ORDER_JAPANESE}"
        rf"|{_ORDER_JAPANESE}[^。！？?\n]{{0,4}}(?:これから(?:ずっと|も)|今後(?:ずっと|も)|毎回)",
    ),
    ("ないで", rf"{_SAY_JAPANESE}(?:れ)?ないで(?:(?:くだ|下)さい|(?:ほし|欲し)い|ね|よ|。|\Z)"),
)

TAKEN_BACK = rules(
    DialogueAct.CORRECTION,
    "user",
    (
        "can may need have longer forget ignore disregard back again",
        r"\byou (?:can|may) (?:now )?(?:stop|drop|skip|quit) (?!by\b|here\b|there\b|at\b|off\b|me\b)\w+"
        r"|\b(?:you (?:don't|do not|needn't)(?: (?:need|have))?(?: to)?|there's no need to|no need to) [^.!?\n]{0,60}"
        r"\b(?:any ?more|any longer|from now on)\b"
        r"|\byou no longer (?:need|have) to\b"
        r"|\b(?:forget|ignore|disregard) (?:what i (?:said|asked)|(?:my|the|that|those|all)"
        r" (?:\w+ )?(?:instructions?|rules?))\b"
        rf"|\byou (?:can|may) [^.!?]{{0,60}}?\b(?:{_ANSWER}|{_HOW})\b[^.!?]{{0,20}}\bagain\b"
        r"|\b(?:go|get) back to (?:normal|your usual|the usual|your normal)\b",
    ),
)
TAKEN_BACK_JAPANESE = rules(
    DialogueAct.CORRECTION,
    "user",
    (
        "もう 指示 元 普通 通常 ルール また 再び",
        r"もう[^。？?\n]{0,40}(?:なくて(?:も)?(?:いい|良い|大丈夫|結構|構)|(?:なくて|ないで)(?:ください|下さい)|(?:いら|要ら)ない"
        r"|不要|必要(?:は|が)?(?:ない|ありません)|やめて(?:いい|ください|下さい|大丈夫))"
        r"|(?:指示|ルール)(?:は|を)[^。\n]{0,8}(?:取り消|忘れて|やめ|なしに|無視)|(?:元|普通|通常)(?:の[^。\n]{1,10})?に戻して"
        r"|(?:また|再び)[^。？?\n]{0,20}(?:答え|返事|返信|返答|説明|話し|書い|使っ)[^。\n]{0,3}(?:て|で)も?(?:いい|良い|大丈夫|構)",
    ),
)
_NAMES_NOTHING = re.compile(r"\b(?:that|this|it|instructions?|rules?|usual|normal)\b|それ|指示|ルール|元|普通|通常")


def standing(said: Sequence[tuple[str, str]]) -> list[bool]:
    """Return for each message of a user whether it is an instruction that nothing said later has taken back.

    What takes one back ends the latest of those instructions that share most terms with it; if it names nothing, the latest
    of all.

    Args:
        said: Acts and texts, in the order of speech.
    """
    found = [act == DialogueAct.INSTRUCTION for act, _ in said]
    for at, (_, text) in enumerate(said):
        if not takes_back(text):
            continue
        found[at] = False
        words = frozenset(search_terms(text))
        stood = [(len(words.intersection(search_terms(said[one][1]))), one) for one in range(at) if found[one]]
        shared, latest = max(stood, default=(0, -1))
        if latest >= 0 and (shared or _NAMES_NOTHING.search(text.lower())):
            found[latest] = False
    return found


def takes_back(text: str) -> bool:
    """Whether a text of the user ends an instruction that stood till now."""
    low = text.lower().replace("\u2019", "'")
    tried: Iterable[Rule] = TAKEN_BACK if text.isascii() else (*TAKEN_BACK, *TAKEN_BACK_JAPANESE)
    return any(rule.pattern.search(low) for rule in tried)
