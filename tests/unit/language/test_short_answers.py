"""Short answers to questions of the assistant state the user's tastes and facts."""

import pytest

from strands_manga_memory.language import RuleSessionSummarizer
from tests.lines import rows


@pytest.mark.parametrize(("lines", "preferences"), rows("short_answers"))
def test_an_answer_states_what_the_question_asks_for(
    lines: list[tuple[str, str]], preferences: dict[str, str]
) -> None:
    """Questions about an order, and answers such as "surprise me", state nothing."""
    assert RuleSessionSummarizer()(lines, max_tokens=300).preferences == preferences


def test_an_answer_is_added_to_earlier_tastes_only_after_a_question_about_one_value() -> None:
    lines = [("user", "I love fantasy."), ("assistant", "Do you like horror?"), ("user", "Yes!")]
    assert RuleSessionSummarizer()(lines, max_tokens=60).preferences["genre"] == "horror, fantasy"
    lines[1:] = [("assistant", "Which genres do you like?"), ("user", "horror")]
    assert RuleSessionSummarizer()(lines, max_tokens=60).preferences["genre"] == "horror"
