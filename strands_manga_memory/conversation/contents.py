"""Contents that take the place of others: each is another object than any that its message had before."""

from __future__ import annotations

from collections.abc import Iterable

from strands.types.content import Message


class Contents:
    """Remembers at which addresses the contents of shortened messages were.

    An observer may know a content by its message's ``tracking_id`` and ``id(content)``, and count it once. A message is
    shortened again as a turn goes on, the earlier content is freed, and Python gives its address to the next list: the observer
    would take the new content for the old one, and the history for larger than it is.
    """

    def __init__(self) -> None:
        self._addresses: dict[str | None, set[int]] = {}

    def replace(self, before: Message, after: Message) -> None:
        """Give ``after`` a content at an address where no content of ``before`` was."""
        used = self._addresses.setdefault(before.get("tracking_id"), set())
        used.add(id(before["content"]))
        tried = [after["content"]]  # kept until one is found, or the same address would come again
        while id(tried[-1]) in used:
            tried.append(list(after["content"]))
        after["content"] = tried[-1]

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Drop what is known of every other message."""
        present = {message.get("tracking_id") for message in messages}
        self._addresses = {id_: used for id_, used in self._addresses.items() if id_ in present}
