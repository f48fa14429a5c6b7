"""The page of promises matches the tests, and names no missing test."""

import re

from tests.probes.promises import ROOT, TABLE, TOPICS, probes, promises, table


def test_every_promise_names_a_test_that_is_there() -> None:
    assert len(probes()) >= 53
    for promise in (promise for topic in promises().values() for promise in topic.values()):
        for test in promise.tests:
            path, name = test.split("::")
            assert re.search(
                rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE
            ), test


def test_every_probe_has_one_topic_and_a_promise_of_its_own() -> None:
    listed = [name for rows in TOPICS.values() for name in rows]
    assert sorted(name for name in listed if name.startswith("test_")) == sorted(probes())
    texts = [promise for promise, _ in probes().values()]
    texts += [name for name in listed if not name.startswith("test_")]
    assert len(texts) == len(set(texts))


def test_every_promise_is_explained_on_a_page() -> None:
    for promise in (promise for topic in promises().values() for promise in topic.values()):
        assert (TABLE.parent / promise.page.partition("#")[0]).is_file(), promise


def test_the_page_of_the_guide_is_up_to_date() -> None:
    assert TABLE.read_text(encoding="utf-8") == table()
