"""Requests of a shop conversation of 40 turns hold nothing false, and every provider takes them."""

import re
from collections.abc import Iterator

import pytest

from strands_manga_memory.testing import Request
from tests.provider_formats import PROVIDERS, problems
from tests.transcript.conversation import Exchange, hold
from tests.transcript.script import CARD, SCRIPTS

pytestmark = pytest.mark.xdist_group("transcript")  # its conversations are held once

_BLOCK = re.compile(r"<(user_memory|conversation_state|recalled_history)>\n(.*?)</\1>", re.DOTALL)
_FIRST_VISIT = 30


@pytest.fixture(scope="module", params=["en", "ja"])
def exchanges(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[Exchange]:
    """The 40 turns as held by one live agent a visit."""
    return list(hold(tmp_path_factory.mktemp("shop"), request.param))


def _language(exchanges: list[Exchange]) -> str:
    return "en" if exchanges[0].user == SCRIPTS["en"].first_visit[0].user else "ja"


def _texts(request: Request) -> Iterator[str]:
    for message in request.messages:
        yield from (block["text"] for block in message["content"] if "text" in block)


def _injected(request: Request) -> list[tuple[str, str]]:
    """Return the injected blocks of a request: name and content."""
    return [(match[1], match[2]) for text in _texts(request) for match in _BLOCK.finditer(text)]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_request_is_valid(exchanges: list[Exchange], provider: str) -> None:
    """A strict validator of each provider's format accepts all requests."""
    found = [
        each
        for exchange in exchanges
        for request in exchange.requests
        for each in problems(request.messages, provider)
    ]
    assert found == []


def test_requests_of_a_tool_loop_extend_one_another(exchanges: list[Exchange]) -> None:
    """Until history gives way, the second request of a turn begins with the whole first one."""
    pairs = [exchange.requests for exchange in exchanges if len(exchange.requests) == 2]
    extends = [second.messages[: len(first.messages)] == first.messages for first, second in pairs]
    assert len(pairs) > 15
    assert sum(extends) >= len(pairs) - 2


def test_injected_text_stands_before_the_words_of_the_user(exchanges: list[Exchange]) -> None:
    """Only the message that opened the turn has injected blocks."""
    for exchange in exchanges:
        for request in exchange.requests:
            holders = [
                m
                for m in request.messages
                if any(_BLOCK.search(block.get("text", "")) for block in m["content"])
            ]
            for message in holders:
                assert message["content"][-1]["text"] == exchange.user


def test_a_request_has_one_injected_block(exchanges: list[Exchange]) -> None:
    """All sections stand in one block, each at most once, none empty, and no heading twice."""
    for exchange in exchanges:
        for request in exchange.requests:
            blocks = [t for t in _texts(request) if "<context>" in t or _BLOCK.search(t)]
            assert len(blocks) == 1
            assert re.fullmatch(r"<context>\n.*</context>\n\n", blocks[0], re.DOTALL)
            sections = _injected(request)
            assert len({name for name, _ in sections}) == len(sections)
            lines = [
                line
                for line in blocks[0].splitlines()
                if line.endswith(":") or line.startswith("<")
            ]
            assert len(lines) == len(set(lines))
            assert all(content.strip() for _, content in sections)


def test_injected_block_is_the_same_in_the_tool_loop_of_a_turn(exchanges: list[Exchange]) -> None:
    """The further requests of a turn hold the block of its first one."""
    for exchange in exchanges:
        assert len({str(_injected(request)) for request in exchange.requests}) == 1


def test_memories_of_an_earlier_session_have_its_day(exchanges: list[Exchange]) -> None:
    """ "It arrives tomorrow" from an earlier session is shown with its day."""
    passages = 0
    for exchange in exchanges[_FIRST_VISIT:]:
        memory = dict(_injected(exchange.requests[0])).get("user_memory", "")
        for line in memory.partition("From earlier sessions, quoted:\n")[2].splitlines():
            passages += 1
            assert line.startswith("- 2026-03-02: ")
    assert passages >= 4


def test_quotes_of_results_are_whole_records(exchanges: list[Exchange]) -> None:
    """A quote has the fitting records, without repeated sentences."""
    quotes = [
        line
        for exchange in exchanges
        for line in dict(_injected(exchange.requests[0])).get("recalled_history", "").splitlines()
        if "description" in line
    ]
    assert quotes
    assert all(line.count("An edition of") == 1 and "title: " in line for line in quotes)


def test_personal_data_is_not_injected(exchanges: list[Exchange]) -> None:
    """The user's card and phone numbers are in no injected block."""
    for exchange in exchanges:
        for request in exchange.requests:
            injected = " ".join(text for _, text in _injected(request)) + str(
                request.system_prompt_content
            )
            for number in (CARD, CARD.replace(" ", ""), "090-1234-5678", "09012345678"):
                assert number not in injected


@pytest.mark.parametrize(
    "false",
    ["title asin", "title copies", "copies (inferred)", "volume 30", "price JPY", "tool_error"],
)
def test_no_false_state_or_quote_is_injected(exchanges: list[Exchange], false: str) -> None:
    """JSON keys are no titles, counts no volumes, budgets no prices."""
    for exchange in exchanges:
        for request in exchange.requests:
            assert [text for _, text in _injected(request) if false in text] == []


def test_quotes_are_no_small_talk(exchanges: list[Exchange]) -> None:
    """Thanks, farewells and errors are not quoted from the history."""
    for exchange in exchanges:
        for request in exchange.requests:
            quotes = "\n".join(t for name, t in _injected(request) if name == "recalled_history")
            for noise in (
                "You're welcome", "どういたしまして", "Thanks!", "ありがとう！",
                "connection refused",
            ):  # fmt: skip
                assert noise not in quotes


def test_gift_is_not_a_preference_of_the_user(exchanges: list[Exchange]) -> None:
    """The sister's taste and budget are neither a preference of this visit nor of the next."""
    for exchange in exchanges:
        for request in exchange.requests:
            preferences = [
                line
                for name, text in _injected(request)
                if name == "user_memory"
                for line in text.splitlines()
            ]
            lines = [*preferences, *str(request.system_prompt_content).split("\\n")]
            stated = [line for line in lines if line.startswith(("- budget:", "- genre:"))]
            assert not [
                each for each in stated if "1500" in each or "shojo" in each or "少女" in each
            ]


def test_first_visit_knows_nothing_earlier(exchanges: list[Exchange]) -> None:
    """In the first conversation no block speaks of earlier sessions."""
    for exchange in exchanges[:_FIRST_VISIT]:
        for request in exchange.requests:
            assert not [
                text
                for _, text in _injected(request)
                if "earlier session" in text or "Latest sessions" in text
            ]


def test_return_after_eight_days_starts_with_what_is_known(exchanges: list[Exchange]) -> None:
    """The prompt has the preferences, the first message the summary."""
    first = exchanges[_FIRST_VISIT].requests[0]
    system = str(first.system_prompt_content)
    is_english = _language(exchanges) == "en"
    english, japanese = (
        ("horror", "gore", "3000 yen", "paperback"),
        ("ホラー", "グロ", "3000円", "ペーパーバック"),
    )
    for value in english if is_english else japanese:
        assert value in system
    summary = "\n".join(text for name, text in _injected(first) if name == "user_memory")
    assert "2026-03-02" in summary
    assert ("Uzumaki" if is_english else "うずまき") in summary
    assert "…" not in summary


def test_language_style_and_title_are_those_of_the_user(exchanges: list[Exchange]) -> None:
    """A language is kept with a style, and a volume with its title."""
    injected = "\n".join(text for r in exchanges[25].requests for _, text in _injected(r))
    if _language(exchanges) == "en":
        assert "- language: English\n" in injected
        assert "volume 1; series PTSD Radio" in injected
    else:
        assert "- language: 日本語\n" in injected
        assert "- style: 短く\n" in injected
        assert "title PTSDラジオ" in injected
        assert "夏目友人帳" not in injected


def test_changed_taste_replaces_the_earlier_one(exchanges: list[Exchange]) -> None:
    """After the user turned to mystery, the latest statement in the request says so."""
    last = exchanges[-1].requests[-1]
    stated = "\n".join(text for name, text in _injected(last) if name == "user_memory")
    assert re.search(r"- genre: (?:mystery|ミステリー)", stated)
    if "- dislikes" in stated:  # a further dislike replaces none
        assert re.search(r"- dislikes: ホラー, グロ", stated)


def test_names_are_shown_as_the_user_wrote_them(exchanges: list[Exchange]) -> None:
    """Capital letters stay, and Japanese quotation marks are not nested."""
    shown = "\n".join(
        text
        for exchange in exchanges
        for request in exchange.requests
        for _, text in _injected(request)
    )

    if _language(exchanges) == "en":
        assert "series Natsume" in shown
        assert "series natsume" not in shown
    else:
        assert "「PTSDラジオの1巻をほしい物リストに入れて」" in shown
        assert "「「" not in shown
