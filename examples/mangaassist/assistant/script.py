"""Rules by which scripted models play the three agents in English and Japanese, offline."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterable, Callable
from typing import Any

from strands.types.streaming import StreamEvent

from mangaassist import catalogue
from mangaassist.assistant.request import CustomerRequest, Result
from strands_manga_memory.testing import ScriptedModel

Answer = str | list[dict[str, Any]]
Rules = Callable[[CustomerRequest], Answer]

_GENRES = {
    "mystery": r"myster|ミステリー|推理",
    "fantasy": r"fantas|ファンタジー",
    "food": r"food|cook|料理|グルメ|食堂",
    "romance": r"roman|恋愛",
    "science fiction": r"science fiction|sci-fi|\bSF\b|ＳＦ",
    "slice of life": r"slice of life|日常",
    "comedy": r"comed|funny|コメディ|笑える",
}
_GENRES_JA = "ミステリー、ファンタジー、料理、恋愛、SF、日常、コメディ"
_GENRES_LACKING = {
    "horror": r"horror|ホラー|怪談",
    "sports": r"\bsports?\b|football|baseball|スポーツ|野球|サッカー",
    "thrillers": r"thriller|スリラー|サスペンス",
    "westerns": r"\bwesterns?\b|西部劇",
    "war": r"\bwar\b|戦争|軍事",
    "robots": r"\bmecha\b|robot|ロボット",
    "isekai": r"isekai|異世界",
}
_CHEAPER = r"cheap|less expensive|costs? less|安い|安く|お得"
_VOLUME = re.compile(r"\bvol(?:ume|\.)? ?(\d+)|(\d+) ?巻", re.IGNORECASE)
_QUESTIONS_JA = {
    "Which volume would you like?": "何巻にしますか？",
    "Paper or digital?": "紙の本と電子版、どちらにしますか？",
}


class ScriptedAssistant(ScriptedModel):
    """Model that answers by rules, word by word with ``pace`` seconds between words."""

    def __init__(self, rules: Rules, *, pace: float = 0.0) -> None:
        super().__init__(
            lambda messages: rules(
                CustomerRequest.parse(messages, self.requests[-1].system_prompt_content)
            )
        )
        self._pace = pace

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterable[StreamEvent]:
        """Stream the answer in pieces."""
        async for event in super().stream(*args, **kwargs):
            delta: Any = event.get("contentBlockDelta", {})
            text = delta.get("delta", {}).get("text")
            if text is None:
                yield event
                continue
            for piece in re.findall(r"\s*[^\s、。！？]+[、。！？]?|\s+|.", text):
                piece_event: Any = {"contentBlockDelta": {**delta, "delta": {"text": piece}}}
                yield piece_event
                await asyncio.sleep(self._pace)


def products(request: CustomerRequest) -> Answer:
    """Find titles, answer questions about stock and prices, and fill the slots of a purchase."""
    for tool, render in (
        ("get_stock", _stock),
        ("search_manga", _titles),
        ("list_volumes", _volumes),
        ("calculator", _price),
    ):
        result = request.result(tool)
        if result is not None:
            return render(request, result)
    filled = request.result("update_slots")
    if filled is not None:
        return _purchase(request, filled.text)
    return next(filter(None, (rule(request) for rule in _PRODUCT_RULES)), None) or _localize(
        request,
        f"I have no rule for “{request.text[:300]}”. Ask me about manga, stock, prices or your"
        " orders.",
        f"「{request.text[:300]}」には決まった答えがありません。作品、在庫、値段、"
        "ご注文についてお尋ねください。",
    )


def orders(request: CustomerRequest) -> Answer:
    """Answer questions about orders, and hand complaints over to the escalation agent."""
    if request.result("hand_over"):
        return _localize(
            request,
            "I am sorry about that. My colleague from escalation takes over with your next"
            " message.",
            "申し訳ございません。次のメッセージから、苦情担当（escalation）の者が対応いたします。",
        )
    for tool in ("order_status", "my_orders"):
        result = request.result(tool)
        if result is not None:
            return _orders(request, result)
    clock = request.result("current_time")
    if clock is not None:
        return _localize(
            request, f"It is {clock.text.strip()}.", f"現在の日時は{clock.text.strip()}です。"
        )
    if polite := _small_talk(request):
        return polite
    if request.has_words(r"complain|unacceptable|refund|human|苦情|ひどい|返金|担当者"):
        return _use(
            "hand_over", agent_id="escalation", summary=f"The customer says: {request.text[:300]}"
        )
    number = re.search(r"ORD-\d{4,12}", request.text, re.IGNORECASE)
    if number:
        return _use("order_status", order_id=number[0].upper())
    if request.has_words(r"what time|what day|today|何時|今日"):
        return _use("current_time", timezone="Asia/Tokyo")
    return _use("my_orders")


def escalation(request: CustomerRequest) -> Answer:
    """Open a case for a human, once, and return its number."""
    opened = request.result("open_case")
    if opened is not None:
        number = re.search(r"C-\w+", opened.text)
        case = number[0] if number else "?"
        return _localize(
            request,
            f"I have read what happened and opened case {case}. A colleague of ours writes to you"
            " today.",
            f"経緯を確認し、{case}番で受け付けました。本日中に担当者からご連絡いたします。",
        )
    handed_over = request.find_in_added_text(r"<handoff from=\S+>(.+?)</handoff>")
    if handed_over or request.has_words(r"complain|refund|human|苦情|返金|担当者"):
        return _use("open_case", reason=(handed_over or request.text)[:300])
    return _small_talk(request) or _localize(
        request,
        "Your case is open; somebody writes to you today.",
        "受付済みです。本日中にご連絡いたします。",
    )


# --- What the product agent says ------------------------------------------------------------------


def _titles(request: CustomerRequest, result: Result) -> str:
    found = [catalogue.find(asin) for asin in result.values("asin")]
    if result.failed:
        return _away(request)
    cheaper = request.has_words(_CHEAPER)
    if not found:
        return (
            _localize(request, "No series costs less.", "これより安い作品はありません。")
            if cheaper
            else _lacking(request)
        )
    if request.japanese:
        lines = [
            f"・『{each.title_ja}』（{each.author}、"
            f"全{each.volumes}巻、{each.price_yen}円）{each.about_ja}"
            for each in found
        ]
        opening = (
            "紙の本と電子版は同じ値段です。もっと安い作品はこちらです。"
            if cheaper
            else "こちらはいかがでしょうか。"
        )
        return "\n".join([opening, *lines])
    lines = [
        f"- {each.title_en} ({each.volumes} volumes, {each.price_yen} yen): {each.about_en}"
        for each in found
    ]
    opening = (
        "Paper and digital cost the same. These cost less a volume:"
        if cheaper
        else "How about one of these?"
    )
    return "\n".join([opening, *lines])


def _stock(request: CustomerRequest, result: Result) -> str:
    found = list(zip(*map(result.values, ("asin", "volume", "copies")), strict=False))
    if result.failed or not found:
        return _away(request)
    asin, volume, copies = found[0]
    manga = catalogue.find(asin)
    copy, are = ("copy", "is") if copies == "1" else ("copies", "are")
    english = f"{copies} {copy} of {manga.title_en}, volume {volume}, {are} in stock."
    japanese = f"『{manga.title_ja}』第{volume}巻の在庫は{copies}冊です。"
    stale = re.search(r"last good answer to the same call, (.+?) old", result.text)
    if stale:
        english += f" (The warehouse does not answer just now; this is {stale[1]} old.)"
        japanese += f"（倉庫が応答しないため、{stale[1]} 前の情報です。）"
    return _localize(request, english, japanese)


def _volumes(request: CustomerRequest, result: Result) -> str:
    numbers, released, prices = map(result.values, ("sku", "released", "price_yen"))
    if result.failed or not (numbers and released and prices):
        return _away(request)
    manga = catalogue.find(numbers[0].rpartition("-")[0])
    return _localize(
        request,
        f"{manga.volumes} volumes since {released[0]}, {prices[0]} yen each.",
        f"全{manga.volumes}巻、{released[0]}から刊行、各{prices[0]}円です。",
    )


def _price(request: CustomerRequest, result: Result) -> str:
    amount = re.search(r"\d+(?:\.\d+)?", result.text)
    if result.failed or amount is None:
        return _away(request)
    yen = round(float(amount[0]))
    return _localize(request, f"{yen} yen a volume, tax included.", f"一巻{yen}円（税込）です。")


def _purchase(request: CustomerRequest, filled: str) -> str:
    if "intent: browsing" in filled:
        return _localize(
            request,
            "All right, I put nothing into your basket.",
            "承知しました。かごには何も入れていません。",
        )
    missing = re.search(r"Missing: (.+)", filled)
    if missing and "volume" in missing[1]:
        return _localize(request, "Which volume would you like?", "何巻にしますか？")
    if missing and "format" in missing[1]:
        return _localize(request, "Paper or digital?", "紙の本と電子版、どちらにしますか？")
    values = dict(re.findall(r"(\w+) = (\w+)", filled))
    volume, kind = values.get("volume", "?"), values.get("format", "?")
    kind_ja = {"paper": "紙の本", "digital": "電子版"}.get(kind, kind)
    return _localize(
        request,
        f"Volume {volume} ({kind}) is in your basket.",
        f"第{volume}巻（{kind_ja}）をかごに入れました。",
    )


def _known(request: CustomerRequest) -> str:
    preferences = re.findall(
        r"^- (?:\[[^\]]*\] )?(favorite [\w ]+|format|language|budget|[^:\n]{2,40}): ?(.+)$",
        request.added_text,
        re.MULTILINE,
    )
    if not preferences:
        return _localize(
            request,
            "Nothing yet. What do you like to read?",
            "まだ何も存じません。どんな作品がお好きですか？",
        )
    known = "; ".join(dict.fromkeys(f"{key}: {value}" for key, value in preferences))
    return _localize(request, f"I remember: {known}.", f"覚えていること：{known}。")


_ABOUT = (
    ("genre", "genre", r"genre|ジャンル"),
    ("author", "author", r"author|writer|mangaka|作家|漫画家|作者"),
    ("format", "format", r"format|edition|形式|版"),
    ("language", "language", r"language|言語|何語"),
    ("budget", "budget", r"budget|予算"),
    ("name", "name", r"\bmy name\b|私の名前"),
)


def _find_requested_preference(request: CustomerRequest) -> str | None:
    """Return the kind of preference that a user asks about, or None."""
    asks = request.has_words(
        r"\b(what|which|do you (know|remember)|remind me|tell me)\b.*\bmy\b"
    ) or request.has_words(
        r"(私|わたし|僕|俺)の.*(何|なに|どれ|どの|教えて|覚えて)|好きな(ジャンル|作家|作者|漫画家)(は|って).*(何|なに|どれ|覚えて)"
    )
    return next((key for key, _, words in _ABOUT if asks and request.has_words(words)), None)


def _known_one(request: CustomerRequest, key: str) -> str:
    """Answer from memories of this session or an earlier one. The latest statement counts."""
    found = re.findall(
        rf"^- (?:\[[^\]]*\] )?(?:favorite )?{key}: ?(.+)$", request.added_text, re.MULTILINE
    )
    if not found:
        return _localize(
            request,
            f"You have not told me your {key} yet. What is it?",
            "まだ伺っていません。教えていただけますか？",
        )
    return _localize(
        request, f"You told me your {key}: {found[-1]}.", f"{found[-1]}、と伺っています。"
    )


# --- What all of them say -------------------------------------------------------------------------


def _orders(request: CustomerRequest, result: Result) -> str:
    if result.failed:
        unknown = "has no order" in result.text
        return (
            _localize(
                request, "You have no order of this number.", "その番号のご注文はありません。"
            )
            if unknown
            else _away(request)
        )
    fields = ("order_id", "title_ja", "title_en", "status", "arrives")
    found = [
        dict(zip(fields, one, strict=True))
        for one in zip(*map(result.values, fields), strict=False)
    ]
    if request.japanese:
        states = {"preparing": "準備中", "shipped": "発送済み", "delivered": "配達済み"}
        return "\n".join(
            f"・{one['order_id']}『{one['title_ja']}』：{states[one['status']]}、{one['arrives']}着"
            for one in found
        )
    return "\n".join(
        f"- {one['order_id']}, {one['title_en']}: {one['status']}, arrives {one['arrives']}"
        for one in found
    )


def _away(request: CustomerRequest) -> str:
    return _localize(
        request,
        "I cannot look that up just now: the system behind it does not answer. Please ask again in"
        " a moment.",
        "ただいま確認できません。システムが応答していません。少し後でもう一度お尋ねください。",
    )


def _localize(request: CustomerRequest, english: str, japanese: str) -> str:
    return japanese if request.japanese else english


def _use(tool: str, **arguments: Any) -> list[dict[str, Any]]:
    return [
        {"toolUse": {"toolUseId": f"use-{uuid.uuid4().hex[:12]}", "name": tool, "input": arguments}}
    ]


def _named(text: str) -> catalogue.Manga | None:
    """Return the series that a text names, or None."""
    text = text.lower()
    for manga in catalogue.CATALOGUE:
        if (
            manga.title_ja in text
            or manga.title_en.lower().removeprefix("the ") in text
            or manga.asin.lower() in text
        ):
            return manga
    return None


def _manga(request: CustomerRequest) -> catalogue.Manga | None:
    """Return the series that the user names, otherwise the last one of the conversation."""
    named = next(filter(None, map(_named, (request.text, *request.earlier))), None)
    asin = request.find_in_added_text(r"\basin (B07X\d{4})")
    return named or (catalogue.find(asin) if asin else None)


def _volume(request: CustomerRequest) -> int | None:
    """Return the volume that the user names, otherwise the last one of the same series."""
    for text in (request.text, *request.earlier):
        if found := _VOLUME.search(text):
            return int(found[1] or found[2])
        if _named(text):
            return None
    known = request.find_in_added_text(r"\bvolume =? ?(\d+)")
    return int(known) if known else None


def _format(request: CustomerRequest) -> str | None:
    return (
        "paper"
        if request.has_words(r"\bpaper\b|紙")
        else "digital"
        if request.has_words(r"\bdigital\b|電子")
        else None
    )


def _favorite(request: CustomerRequest) -> str | None:
    genres = "\n".join(re.findall(r"(?:genre|ジャンル): .*", request.added_text))
    return next(
        (genre for genre, words in _GENRES.items() if re.search(words, genres, re.IGNORECASE)), None
    )


# --- Rules of the product agent: each answers, or leaves the message to the next one --------------


def _cancelled(request: CustomerRequest) -> Answer | None:
    cancels = request.has_words(
        r"never mind|cancel|forget it|changed my mind|not any more|やめ|キャンセル|やっぱりいい"
    )
    return _use("update_slots", intent="browsing") if cancels and _is_buying(request) else None


def _small_talk(request: CustomerRequest) -> Answer | None:
    if request.has_words(
        r"^\W*(?:hi|hello|hey|good"
        r" (?:morning|evening)|こんにちは|こんばんは|おはよう(?:ございます)?)\W*$"
    ):
        return _localize(
            request, "Hello! What would you like to read?", "こんにちは。どんな作品をお探しですか？"
        )
    if request.has_words(
        r"^\W*(?:ok\W+|great\W+)?(?:thanks?(?: you)?(?: very much| a"
        r" lot)?|ありがとう(?:ございま(?:す|した))?)\W*$"
    ):
        return _localize(request, "You are welcome.", "どういたしまして。")
    return None


def _about_the_user(request: CustomerRequest) -> Answer | None:
    if about := _find_requested_preference(request):
        return _known_one(request, about)
    return (
        _known(request)
        if request.has_words(r"know about me|what do i like|my taste|私の好み|覚えて")
        else None
    )


def _introduced(request: CustomerRequest) -> Answer | None:
    found = re.search(
        r"\b(?:[Mm]y name is|[Cc]all me|I am|I'm) ([A-Z]\w+)", request.text
    ) or re.search(
        r"(?:名前は|^|。)([^\s、。はが]{1,20}?)(?:といいます|と申します|です。?$)", request.text
    )
    if (
        found is None
        or request.has_words(r"[?？]")
        or (request.japanese and not request.has_words(r"名前は|といいます|と申します"))
    ):
        return None
    return _localize(
        request,
        f"Nice to meet you, {found[1]}. I will remember your name.",
        f"{found[1]}様ですね。覚えておきます。",
    )


def _preference(request: CustomerRequest) -> Answer | None:
    if request.has_words(
        r"favou?rite|prefer|don't like|\bhate\b|好きな|苦手|嫌い"
    ) and not request.has_words(r"recommend|find|search|おすすめ|探"):
        return _localize(request, "Noted, I will remember that.", "承知しました。覚えておきます。")
    return None


def _no_such_volume(request: CustomerRequest) -> Answer | None:
    manga, found = _manga(request), _VOLUME.search(request.text)
    if manga is None or found is None or 1 <= int(found[1] or found[2]) <= manga.volumes:
        return None
    return _localize(
        request,
        f"{manga.title_en} has volumes 1 to {manga.volumes}.",
        f"『{manga.title_ja}』は1巻から{manga.volumes}巻までです。",
    )


def _bought(request: CustomerRequest) -> Answer | None:
    if not request.has_words(
        r"\bbuy\b|purchase|\btake it\b|basket|買|欲しい|注文したい|それにします"
    ):
        return None
    given = {"volume": _volume(request), "format": _format(request)}
    values = {name: str(value) for name, value in given.items() if value}
    return _use(
        "update_slots",
        intent="purchase",
        **({"values": values, "confirmed": True} if values else {}),
    )


def _slot(request: CustomerRequest) -> Answer | None:
    """Fill a slot of the purchase: the format, or a number alone as the volume."""
    if not _is_buying(request):
        return None
    if kind := _format(request):
        return _use("update_slots", values={"format": kind}, confirmed=True)
    number = re.fullmatch(r"\D{0,5}(\d{1,2})\D{0,10}", request.text)
    if (
        number
        and request.find_in_added_text(r"(Ask the user next: Which volume)")
        and not _VOLUME.search(request.text)
    ):
        return _use("update_slots", values={"volume": number[1]}, confirmed=True)
    return None


def _about_a_series(request: CustomerRequest) -> Answer | None:
    manga = _manga(request)
    if request.has_words(_CHEAPER):
        return _use("search_manga", max_price_yen=manga.price_yen - 1 if manga else 600, limit=3)
    if manga is None:
        return None
    if request.has_words(r"stock|在庫"):
        return _use("get_stock", asin=manga.asin, volume=_volume(request) or 1)
    if request.has_words(r"how much|price|いくら|値段"):
        return _use("calculator", expression=f"{manga.price_yen} * 1.1")
    if request.has_words(r"all (the )?volumes|every volume|list|一覧|全巻"):
        return _use("list_volumes", asin=manga.asin)
    return None


def _genre(request: CustomerRequest) -> Answer | None:
    named = next((genre for genre, words in _GENRES.items() if request.has_words(words)), None)
    if named is None and any(map(request.has_words, _GENRES_LACKING.values())):
        return _lacking(request)
    genre = named or _favorite(request)
    if genre and request.has_words(
        r"find|recommend|read|manga|series|show|おすすめ|探|読み|漫画|作品|教えて|" + _GENRES[genre]
    ):
        return _use("search_manga", genre=genre, limit=3)
    return None


def _lacking(request: CustomerRequest) -> Answer:
    """Name the genre that the shop lacks, and the genres that it has."""
    genre = next(
        (genre for genre, words in _GENRES_LACKING.items() if request.has_words(words)),
        "series of this kind",
    )
    words = re.search(_GENRES_LACKING.get(genre, "$^"), request.text, re.IGNORECASE)
    return _localize(
        request,
        f"We have no {genre}. Our genres are {', '.join(_GENRES)}.",
        f"{words[0] if words else 'その種類'}の作品は取り扱いがありません。"
        f"{_GENRES_JA}がございます。",
    )


def _volume_alone(request: CustomerRequest) -> Answer | None:
    manga, found = _manga(request), _VOLUME.search(request.text)
    if manga and found and not _is_buying(request):
        return _use("get_stock", asin=manga.asin, volume=int(found[1] or found[2]))
    return None


def _some_titles(request: CustomerRequest) -> Answer | None:
    if request.has_words(r"stock|find|recommend|manga|read\b|在庫|おすすめ|探|漫画"):
        return _use("search_manga", limit=3)
    return None


def _next_question(request: CustomerRequest) -> Answer | None:
    """Ask for the next slot, after the rules that answer other questions."""
    question = request.find_in_added_text(r"Ask the user next: (.+?\?)")
    if question and _is_buying(request):
        return _QUESTIONS_JA.get(question, question) if request.japanese else question
    return None


def _title_alone(request: CustomerRequest) -> Answer | None:
    manga = _named(request.text)
    return _use("search_manga", query=manga.title_ja, limit=1) if manga else None


_PRODUCT_RULES: tuple[Callable[[CustomerRequest], Answer | None], ...] = (
    *(
        _cancelled,
        _small_talk,
        _about_the_user,
        _introduced,
        _preference,
        _no_such_volume,
        _bought,
        _slot,
    ),
    *(_about_a_series, _genre, _volume_alone, _some_titles, _next_question, _title_alone),
)


def _is_buying(request: CustomerRequest) -> bool:
    return request.find_in_added_text(r"(intent: purchase)") is not None
