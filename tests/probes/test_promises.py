"""The table of promises is as the tests are, and names none that is not there."""

from __future__ import annotations

import re

from tests.probes.promises import OTHERS, ROOT, TABLE, probes, table


def test_every_promise_names_a_test_that_is_there() -> None:
    promises = {**probes(), **OTHERS}
    assert len(probes()) >= 53
    assert not set(probes()) & set(OTHERS)
    for tests in promises.values():
        for test in tests:
            path, name = test.split("::")
            assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), test


def test_the_page_of_the_guide_is_up_to_date() -> None:
    assert TABLE.read_text(encoding="utf-8") == table()
