"""What stays under a budget."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strands_manga_memory.conversation import RuleScorer
from strands_manga_memory.conversation.importance import MessageFeatures, message_act
from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.conversation.selection import (
    CURRENT_TURN,
    FIRST_TURN,
    NO_QUESTION,
    NO_ROOM,
    TOO_MANY_TURNS,
    Selection,
    SelectionBudget,
    is_pinned,
    select,
)
from strands_manga_memory.messages import for_model
from tests.histories import problems
from tests.unit.conversation.messages import assistant, calls, pinned, results, user

PREFERENCE, GREETING = "I prefer horror manga.", "Hello!"
LONG_PREFERENCE = PREFERENCE + " and" * 96


class Words:
    """Counts words, so that sizes in the tests are plain."""

    def count(self, message: Any) -> int:
        total = 0
        for block in message["content"]:
            if "toolResult" in block:
                total += self.count(block["toolResult"])
            elif "toolUse" in block:
                total += len(str(block["toolUse"]["input"]).split())
            elif "image" in block:
                total += 100
            else:
                total += len(block["text"].split())
        return total


COUNT = Words().count


def chosen(
    history: list[Any], budget: int, *, scores: dict[int, float] | None = None, **limits: Any
) -> Selection:
    features = [
        MessageFeatures(
            COUNT(message),
            (scores or {}).get(at, RuleScorer().score(message)),
            message_act(message),
        )
        for at, message in enumerate(history)
    ]
    return select(history, features, SelectionBudget(budget, **limits), COUNT)


def words(number: int) -> str:
    return " ".join(["w"] * number)


def exchange(number: int = 10, text: str = "") -> list[Any]:
    """A question and an answer of so many words together."""
    return [
        user(text or words(number // 2)),
        assistant(words(number - (len(text.split()) or number // 2))),
    ]


def test_within_the_budget_everything_stays() -> None:
    history = [*exchange(), *exchange(), *exchange()]
    choice = chosen(history, 30)
    assert list(choice.kept.values()) == history
    assert choice.tokens == 30
    assert chosen([], 10).kept == {}


def test_first_and_current_turn_stay_and_of_the_rest_the_newest() -> None:
    history = [message for _ in range(6) for message in exchange()]
    choice = chosen(history, 40)
    assert list(choice.kept) == [0, 1, 6 + 0, 6 + 1, 8, 9, 10, 11]
    assert choice.reasons[0] == FIRST_TURN
    assert choice.reasons[2] == NO_ROOM
    assert choice.reasons[8] == "middle band"
    assert choice.reasons[11] == CURRENT_TURN


def test_bands_go_before_age() -> None:
    history = [
        *exchange(),
        *exchange(text=PREFERENCE),
        *exchange(text=GREETING),
        *exchange(),
        *exchange(),
        *exchange(),
    ]
    scores = {5: 0.1}
    assert list(chosen(history, 50, scores=scores).kept) == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    assert list(chosen(history, 40, scores=scores).kept) == [0, 1, 2, 7, 8, 9, 10, 11]
    assert list(chosen(history, 30, scores=scores).kept) == [0, 1, 2, 9, 10, 11]
    assert list(chosen(history, 20, scores=scores).kept) == [0, 1, 10, 11]


def test_an_unimportant_answer_stays_only_beside_another_message_of_its_turn() -> None:
    talk = [*exchange(), user(words(20)), assistant("Fine."), user("Hi."), assistant("Fine.")]
    history = [*talk, *exchange()]
    scores = {3: 0.1, 4: 0.1, 5: 0.1}
    choice = chosen(history, 24, scores=scores)
    assert list(choice.kept) == [0, 1, 4, 5, 6, 7]
    assert choice.reasons[3] == NO_QUESTION
    assert list(chosen(history, 24, scores=scores | {3: 0.9}).kept) == [0, 1, 3, 4, 5, 6, 7]


def test_a_choice_that_is_to_last_keeps_no_tool_result_for_being_fresh() -> None:
    history = [*exchange(), *exchange(), *exchange()]
    history += [
        user(words(5)),
        calls("a"),
        results("a", content=[{"text": words(20)}]),
        assistant(words(5)),
        *exchange(),
    ]
    now, later = chosen(history, 55), chosen(history, 55, turns_until_next=12)
    assert {7, 8} <= now.kept.keys()
    assert not {2, 3, 4, 5} <= now.kept.keys()
    assert not {7, 8} & later.kept.keys()
    assert {2, 3, 4, 5} <= later.kept.keys()


def test_a_result_that_is_little_more_than_its_short_form_stays_whole() -> None:
    found = json.dumps([f"volume {number % 30}" for number in range(33)])
    tools = [
        user(words(5)),
        calls("a"),
        results("a", content=[{"text": found}]),
        assistant(words(5)),
    ]
    choice = chosen([*exchange(), *tools, *exchange()], 100)
    assert choice.kept[4] is tools[2]
    assert choice.tokens == sum(map(COUNT, choice.kept.values()))


def test_an_answer_stays_without_its_question() -> None:
    question = user("ok so what do you think of it then")
    history = [
        *exchange(),
        question,
        assistant("I recommend the deluxe edition."),
        *exchange(text=GREETING),
        *exchange(),
    ]
    choice = chosen(history, 26, scores={2: 0.1, 5: 0.1})
    assert list(choice.kept) == [0, 1, 3, 6, 7]
    assert choice.reasons[3] == "middle band"
    assert choice.reasons[2] == choice.reasons[4] == NO_ROOM
    assert problems(for_model(choice.messages)) == []


def test_placeholders_of_the_request_are_part_of_the_budget() -> None:
    history = [*exchange(), *[user(words(9)) for _ in range(3)], *exchange()]
    choice = chosen(history, 48)
    assert list(choice.kept) == [0, 1, 2, 3, 4, 5, 6]
    assert choice.tokens == sum(map(COUNT, for_model(choice.messages))) == 48
    assert list(chosen(history, 47).kept) == [0, 1, 3, 4, 5, 6]


def test_pinned_messages_stay() -> None:
    history = [message for _ in range(5) for message in exchange()]
    history[3] = pinned(history[3])
    choice = chosen(history, 25)
    assert list(choice.kept) == [0, 1, 3, 8, 9]
    assert is_pinned(choice.kept[3])
    assert not is_pinned({"role": "user", "content": [], "metadata": {"custom": {"pinned": False}}})


def test_tool_cycles_of_earlier_turns_go_before_their_questions_and_answers() -> None:
    tools = [
        user(words(5)),
        calls("a"),
        results("a", content=[{"text": words(20)}]),
        calls("b"),
        results("b"),
        assistant(words(5)),
    ]
    history = [*exchange(), *tools, *exchange()]
    choice = chosen(history, 36)
    assert list(choice.kept) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert choice.reasons[2] == choice.reasons[7] == "middle band"
    assert choice.reasons[3] == choice.reasons[4] == NO_ROOM
    assert choice.reasons[5] == choice.reasons[6] == "middle band"


def test_a_pinned_result_keeps_its_call_and_its_parallel_results() -> None:
    tools = [
        user(words(20)),
        calls("a", "b"),
        pinned(results("a", "b")),
        calls("c"),
        results("c"),
        assistant(words(20)),
    ]
    history = [*exchange(), *tools, *exchange(40), *exchange()]
    choice = chosen(history, 40)
    assert {3, 4} <= choice.kept.keys()
    assert {2, 7}.isdisjoint(choice.kept)


def test_turns_without_an_answer_can_go_one_by_one_the_oldest_first() -> None:
    history = [
        *exchange(),
        *[user(words(10)) for _ in range(10)],
        assistant(words(10)),
        *exchange(),
    ]
    assert list(chosen(history, 61).kept) == [0, 1, 9, 10, 11, 12, 13, 14]


def test_a_first_turn_without_an_answer_stays() -> None:
    history = [*[user(words(10)) for _ in range(10)], assistant(words(10)), *exchange()]
    assert list(chosen(history, 51).kept) == [0, 8, 9, 10, 11, 12]


def test_a_message_sent_again_later_is_not_the_first_turn() -> None:
    again = user(words(10))
    history = [
        again,
        assistant(words(10)),
        *exchange(20),
        again,
        assistant(words(10)),
        *exchange(20),
    ]
    assert list(chosen(history, 40).kept) == [0, 1, 6, 7]


def test_a_cap_in_turns() -> None:
    history = [message for _ in range(6) for message in exchange()]
    choice = chosen(history, 1_000, turns=3)
    assert list(choice.kept) == [0, 1, 8, 9, 10, 11]
    assert choice.reasons[2] == TOO_MANY_TURNS
    assert list(chosen(history, 1_000, turns=1).kept) == [0, 1, 10, 11]


def test_large_results_are_shortened_first_older_ones_before_the_newest() -> None:
    history = [
        user(),
        calls("a"),
        results("a", content=[{"text": words(3_000)}]),
        calls("b"),
        results("b", content=[{"text": words(900)}]),
    ]
    choice = chosen(history, 2_000)
    assert choice.tokens <= 2_000
    assert choice.truncated == {2}
    assert choice.kept[4] is history[4]


def test_large_results_also_make_room_for_the_high_band_up_to_half_the_budget() -> None:
    tool_turn = [user(), calls("a"), results("a", content=[{"text": words(1_900)}]), assistant()]
    history = [*exchange(), *exchange(600, text=LONG_PREFERENCE), *exchange(600), *tool_turn]
    choice = chosen(history, 2_000)
    assert {0, 1, 2, 6, 7, 8, 9} <= choice.kept.keys()
    assert 8 in choice.truncated
    assert choice.reasons[2] == "high band"
    many = [
        *exchange(),
        *[message for _ in range(9) for message in exchange(600, text=LONG_PREFERENCE)],
        *tool_turn,
    ]
    assert (
        chosen(many, 2_000).kept[22]["content"][0]["toolResult"]["content"][0]["text"].count("w")
        > 800
    )


def test_a_long_answer_makes_room_once_it_is_given_down_to_half_the_budget() -> None:
    asked = [
        *exchange(),
        *[message for _ in range(9) for message in exchange(600, text=LONG_PREFERENCE)],
        user(),
    ]
    history = [*asked, assistant(words(1_900))]
    choice = chosen(history, 2_000)
    assert choice.truncated >= {21}
    assert {2, 4, 6, 8, 10, 12, 14, 16, 18} <= choice.kept.keys()
    assert COUNT(choice.kept[21]) > 800
    short = assistant(words(900))
    assert chosen([*asked, short], 2_000).kept[21] is short


def test_one_huge_result_does_not_drive_out_the_conversation() -> None:
    tool_turn = [user(), calls("a"), results("a", content=[{"text": words(9_000)}]), assistant()]
    history = [*exchange(), *[message for _ in range(40) for message in exchange(100)], *tool_turn]
    choice = chosen(history, 2_000)
    recent = [at for at in choice.kept if choice.reasons[at] == "middle band"]
    assert recent == list(range(82 - len(recent), 82))
    assert 400 <= sum(COUNT(choice.kept[at]) for at in recent) <= 600


def test_then_the_first_turn_is_truncated_then_the_oldest_calls_of_the_turn_go() -> None:
    cycles = []
    for number in range(20):
        cycles += [calls(f"c{number}"), results(f"c{number}", content=[{"text": words(90)}])]
    history = [user(words(800)), assistant(words(800)), user("and now?"), *cycles]
    choice = chosen(history, 1_000)
    assert choice.tokens <= 1_000
    assert problems(for_model(list(choice.kept.values()))) == []
    assert is_truncated(choice.kept[0])
    assert is_truncated(choice.kept[1])
    assert {2, 41, 42} <= choice.kept.keys()
    gone = [at for at in range(3, 43) if at not in choice.kept]
    assert gone == list(range(3, 3 + len(gone)))
    assert gone
    assert choice.reasons[3] == NO_ROOM


def test_then_media_give_way_to_notes_and_at_last_the_users_own_text_is_cut() -> None:
    image = {"image": {"format": "png", "source": {"bytes": b""}}}
    pictures = {**user("look"), "content": [image, image, image, {"text": "look"}]}
    choice = chosen([pictures], 250)
    assert [next(iter(block)) for block in choice.kept[0]["content"]] == [
        "text",
        "image",
        "image",
        "text",
    ]
    choice = chosen([user(words(5_000))], 250)
    assert choice.tokens <= 250
    choice = chosen(
        [user(), calls("a", tool_input={"text": words(5_000)}), results("a"), assistant()], 250
    )
    assert choice.tokens <= 250


def test_a_call_that_waits_for_its_result_is_not_changed() -> None:
    history = [user(words(500)), calls("a", tool_input={"text": words(400)})]
    choice = chosen(history, 450)
    assert choice.kept[1] is history[1]
    assert choice.tokens <= 450


def test_pins_over_the_budget_stay_and_the_rest_keeps_a_readable_size() -> None:
    history = [
        *exchange(),
        pinned(user(words(900))),
        assistant("yes"),
        user(words(400)),
        assistant(words(400)),
    ]
    choice = chosen(history, 500)
    assert choice.kept[2] is history[2]
    assert choice.tokens > 500
    assert 40 <= COUNT(choice.kept[4]) <= 64


def test_many_pins_drive_out_what_stands_beside_them() -> None:
    turns = [
        [pinned(user("keep")), calls(f"t{number}"), results(f"t{number}"), assistant(words(60))]
        for number in range(12)
    ]
    history = [*exchange(), *[message for turn in turns for message in turn], *exchange()]
    history[3] = pinned(history[3])
    choice = chosen(history, 120)
    assert choice.tokens <= 120
    assert {at for at, m in enumerate(history) if is_pinned(m)} | {4} <= choice.kept.keys()


def test_many_results_of_pinned_calls_leave_no_more_than_their_notes() -> None:
    ids = [[f"t{number}-{index}" for index in range(3)] for number in range(5)]
    history = [user("hello")]
    for each in ids:
        history += [
            user("look"),
            pinned(calls(*each)),
            results(*each, content=[{"text": words(60)}]),
        ]
    history += [user("and now?")]
    choice = chosen(history, 220)
    assert choice.tokens <= 220
    assert {at for at, message in enumerate(history) if is_pinned(message)} <= choice.kept.keys()


# --- Any history ----------------------------------------------------------------------------------

_TEXTS = st.sampled_from(
    [PREFERENCE, GREETING, "No, I meant the other one.", "Is it in stock?", words(60), words(400)]
)


@st.composite
def _turns(draw: st.DrawFn) -> list[Any]:
    turn = [user(draw(_TEXTS))]
    for number in range(draw(st.integers(0, 3))):
        ids = [f"{turn[0]['tracking_id']}-{number}-{i}" for i in range(draw(st.integers(1, 3)))]
        turn += [calls(*ids), results(*ids, content=[{"text": draw(_TEXTS)}])]
    if draw(st.booleans()) or draw(st.booleans()):
        turn.append(assistant(draw(_TEXTS)))
    if draw(st.integers(0, 7)) == 0:
        at = draw(st.integers(0, len(turn) - 1))
        if COUNT(turn[at]) < 20:
            turn[at] = pinned(turn[at])
    return turn


@settings(deadline=None, max_examples=80)
@given(
    st.lists(_turns(), min_size=1, max_size=12),
    st.integers(300, 900),
    st.none() | st.integers(1, 4),
)
def test_any_choice_is_within_the_budget_valid_and_the_same_again(
    history: list[list[Any]], budget: int, cap: int | None
) -> None:
    messages = [message for turn in history for message in turn]
    before = copy.deepcopy(messages)
    choice = chosen(messages, budget, turns=cap)
    assert messages == before
    assert choice == chosen(messages, budget, turns=cap)
    kept = list(choice.kept.values())
    assert choice.tokens == sum(map(COUNT, for_model(kept)))
    pins = sum(COUNT(message) for message in messages if is_pinned(message))
    if pins < budget // 3:
        assert choice.tokens <= budget
    assert choice.reasons.keys() == set(range(len(messages)))
    assert {at for at, message in enumerate(messages) if is_pinned(message)} <= choice.kept.keys()
    assert 0 in choice.kept
    assert len(messages) - 1 in choice.kept
    assert problems(for_model(kept)) == []
    again = chosen(kept, budget, turns=cap)
    if choice.tokens <= budget and len(history) == 1:
        assert list(again.kept.values()) == kept
