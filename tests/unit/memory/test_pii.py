"""The PII policy: recall on 200 lines in two languages, precision, and actions."""

import re
from random import Random

import pytest

from strands_manga_memory import AesGcmCipher, PiiPolicy
from strands_manga_memory.exceptions import PersonalDataError
from strands_manga_memory.memory import PiiRule
from tests.lines import rows


def digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def test_recall_of_the_default_rules() -> None:
    policy, missed = PiiPolicy(), []
    every = rows("common_personal_data")
    for line, data in every:
        cleaned = policy.applied(line)
        # What is left of a street without its number is no address any more.
        if data in cleaned or (len(digits(data)) > 3 and digits(data) in digits(cleaned)):
            missed.append((line, cleaned))
    assert len(every) >= 200
    assert len(missed) <= 0.05 * len(every), missed


def test_what_is_around_it_stays() -> None:
    text = "Write to hanako@example.com or call 090-1234-5678, 私の好きな漫画はホラーです。"
    assert (
        PiiPolicy().applied(text)
        == "Write to [email] or call [phone], 私の好きな漫画はホラーです。"
    )


def test_check_digits_decide() -> None:
    from strands_manga_memory.language.pii import is_card_number, is_my_number

    assert is_card_number("4111 1111 1111 1111")
    assert not is_card_number("4111 1111 1111 1112")
    assert not is_card_number("9784063706543")
    assert is_my_number("1234-5678-9018")
    assert not is_my_number("1234-5678-9019")


def test_refused_by_rule_without_quoting_it() -> None:
    policy = PiiPolicy(actions={"card": "refuse"})
    with pytest.raises(PersonalDataError, match=r"\(card\)") as refused:
        policy.applied("my card is 4111 1111 1111 1111")
    assert "4111" not in str(refused.value)
    assert policy.applied("mail a@example.com") == "mail [email]"


def test_encrypted_by_rule_and_opened_at_its_place_only() -> None:
    policy = PiiPolicy(
        actions={"phone": "encrypt"}, cipher=AesGcmCipher({"k": b"0" * 32}, current="k")
    )
    stored = policy.of_user("u1").applied("call 090-1234-5678 now")
    assert "1234" not in stored
    assert policy.of_user("u1").opened(stored) == "call 090-1234-5678 now"
    assert policy.of_user("u2").opened(stored) == "call [phone] now"
    assert PiiPolicy().of_user("u1").opened(stored) == "call [phone] now"


def test_values_of_any_depth() -> None:
    value = {"a@example.com": ["call 090-1234-5678", 3, None, {"x": ("b@example.com",)}]}
    assert PiiPolicy().applied_to(value) == {
        "[email]": ["call [phone]", 3, None, {"x": ["[email]"]}]
    }


def test_rules_are_data() -> None:
    policy = PiiPolicy((PiiRule("member", re.compile(r"M-\d{4}")),))
    assert policy.applied("M-1234, a@example.com") == "[member], a@example.com"
    assert PiiPolicy(()).applied("a@example.com") == "a@example.com"


def test_recall_and_precision_of_the_further_kinds() -> None:
    """All thirteen kinds, in unusual forms too, and no line of a shop that holds none of them."""
    policy = PiiPolicy()
    secrets = [(policy.applied(line), s) for line, every in rows("personal_data") for s in every]
    missed = [(cleaned, secret) for cleaned, secret in secrets if secret in cleaned]
    assert len(secrets) >= 190
    assert len(missed) <= 0.02 * len(secrets), missed
    harmless = rows("no_personal_data")
    assert len(harmless) >= 200
    assert [(line, cleaned) for line in harmless if (cleaned := policy.applied(line)) != line] == []


def test_order_numbers_are_no_cards() -> None:
    policy, random = PiiPolicy(), Random(7)
    for prefix in (249, 250, 503):
        for _ in range(300):
            order = f"{prefix}-{random.randrange(10**7):07d}-{random.randrange(10**7):07d}"
            assert policy.applied(f"order {order}") == f"order {order}"


def test_a_number_that_is_named_as_another_things_is_left_alone() -> None:
    rule = PiiRule("code", re.compile(r"\d{4}"), unless=re.compile("volume <|> pages"))
    policy = PiiPolicy((rule,))
    assert (
        policy.applied("code 1234, volume 1234, 1234 pages")
        == "code [code], volume 1234, 1234 pages"
    )
