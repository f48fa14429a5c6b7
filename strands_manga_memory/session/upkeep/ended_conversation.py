"""EndedConversation: a conversation that nobody uses any more, for a sweeper and for whoever summarizes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from strands_manga_memory.language.session_summaries import Transcript, Utterance
from strands_manga_memory.messages import is_message
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.protocol.opening import connect
from strands_manga_memory.session.protocol.record import CONTINUES, Record, Turn, TurnKey
from strands_manga_memory.stores.encoding.codec import load


class EndedConversation:
    """A conversation whose time to live is over, or that was closed.

    Args:
        place: The conversation.
        tiers: Its stores.
        ids: Its original ids, as far as an index has them; they count where no record is left.

    Attributes:
        hold: This process's hold of it.
    """

    def __init__(self, place: Place, tiers: Tiers, *, ids: Mapping[str, str | None] | None = None) -> None:
        self.place = place
        self._ids = {name: value for name, value in (ids or {}).items() if value is not None}
        self.hold = connect(place, tiers, ids=self._ids)

    @property
    def record(self) -> Record:
        """What is known of it."""
        return self.hold.local.base

    @property
    def ids(self) -> Mapping[str, str]:
        """Original ids of session, user, tenant and member, as far as they are known."""
        return self.record.ids or self._ids

    def flush(self, *, claimed: tuple[int, int]) -> bool:
        """Store in the durable tier what only the hot tier has, without a write to the hot tier.

        Args:
            claimed: Epoch and version of the hot record that was claimed.

        Returns:
            False if the hot tier has nothing of it, or somebody has written since.

        Raises:
            StoreUnavailableError: A tier does not answer.
            CorruptRecordError: The head in a tier cannot be read.
        """
        found = self.hold.read_hot(touch=False)
        if found is None or found.is_empty or self.hold.hot is None or self.hold.hot.stored_as != claimed:
            return False
        if self.hold.durable is not None:
            self.hold.close(writes_hot=False)
        return True

    def read(self) -> None:
        """Read the conversation from the durable tier, without one from the hot tier; no time to live is touched.

        Raises:
            StoreUnavailableError: The tier does not answer.
            CorruptRecordError: The head cannot be read.
        """
        if self.hold.durable is not None:
            self.hold.read_head(is_alone=True)
        else:
            self.hold.read_hot(touch=False)

    @property
    def ended_incarnations(self) -> list[int]:
        """Incarnations that ended by age and whose turns are still in the log.

        A user who comes back before a sweeper has looked begins a new incarnation, and the earlier one has no summary yet. The
        log may also outlive a head that the table's own TTL has deleted.
        """
        if self.hold.durable is None:
            return []
        record = self.record
        lowest = max(1, record.carries_from)
        return [
            number
            for number in self.hold.durable.incarnations()
            if number >= lowest and (number < record.incarnation or not record.incarnation)
        ]

    def transcripts(self) -> Iterator[Transcript]:
        """Yield the transcript of each incarnation that ended by age, the earliest first, then that of the present one."""
        if self.hold.durable is not None:
            for number in self.ended_incarnations:
                yield from self._transcript(sorted(self.hold.durable.read_log(number).items()))
        if not self.record.is_empty:
            yield from self._transcript(self.hold.history(), turns=self.record.turn_count)

    def _transcript(self, log: Sequence[tuple[TurnKey, Turn]], *, turns: int | None = None) -> Iterator[Transcript]:
        """Yield the transcript of a log, if it has messages and its user is known."""
        ids = self.ids
        if not log or not ids.get("user") or not ids.get("session"):
            return
        utterances: list[Utterance] = []
        count = number = 0
        for _, turn in log:
            number += not number or not turn.about.get(CONTINUES)
            for data, at in zip(turn.messages, turn.times, strict=True):
                message = load(data)
                count += 1
                if is_message(message) and (text := message_text(message).strip()):
                    utterances.append(Utterance(message["role"], text, number, at, message.get("tracking_id") or ""))
        yield Transcript(
            user_id=ids["user"],
            tenant=ids.get("tenant"),
            session_id=ids["session"],
            agent_id=ids.get("member") or "default",
            mark=f"{round(log[0][1].times[0] * 1000):x}",
            utterances=tuple(utterances),
            turns=number if turns is None else turns,
            covered=count,
            revisions=sum(sum(turn.redacted.values()) for _, turn in log),
            ended_at=log[-1][1].times[-1],
        )
