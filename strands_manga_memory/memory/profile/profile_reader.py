"""ProfileReader: reads what a source knows of a user within a deadline, whatever the source does."""

from __future__ import annotations

import contextvars
import logging
import threading
import weakref
from concurrent.futures import Future

from strands_manga_memory.arguments import with_method
from strands_manga_memory.forks import at_fork
from strands_manga_memory.memory.profile.profile_source import Profile, ProfileSource, profile_of
from strands_manga_memory.memory.records.memory_records import Owner

logger = logging.getLogger(__name__)

PROFILE_DEADLINE = 0.25
"""Seconds that the start of an agent waits for a profile."""

_MOST_THREADS = 8
_MOST_LATE = 1_000


class ProfileReader:
    """A ``ProfileSource`` that never raises, never takes longer than its deadline, and leaves out fields of another type.

    A source that is asked is waited for on up to 8 daemon threads, one for each user; beyond that it is not asked. An answer
    that comes too late is told the next time, unless a newer one is there by then; up to 1,000 of them are kept.

    Args:
        source: Who knows the profiles.
        deadline: Seconds that a read may take. Default 0.25.

    Raises:
        ValueError: ``deadline`` is not above 0, or ``source`` has no ``read``.
    """

    def __init__(self, source: ProfileSource, *, deadline: float = PROFILE_DEADLINE) -> None:
        with_method("profile", source, "read(user_id, tenant=None)")
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline <= threading.TIMEOUT_MAX:
            raise ValueError(f"deadline must be a positive number of seconds, got {deadline!r:.80}")
        self._source = source
        self._deadline = deadline
        self._warned: set[str] = set()
        self._reset()
        _readers.add(self)

    @classmethod
    def of(cls, source: ProfileSource | None, *, deadline: float = PROFILE_DEADLINE) -> ProfileReader | None:
        """Return a reader of a source; one that is a reader already keeps its deadline."""
        return source if source is None or isinstance(source, ProfileReader) else cls(source, deadline=deadline)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[Owner, Future[Profile | None]] = {}
        self._late: dict[Owner, Profile | None] = {}

    def read(self, user_id: str, *, tenant: str | None = None) -> Profile | None:
        """Return the profile; None if there is none, or none that can be had in time."""
        owner = Owner(user_id, tenant)
        try:
            asked = self._ask(owner)
            profile = asked.result(self._deadline)
        except Exception as error:  # noqa: BLE001 - a source is others' code, and no agent's start depends on it
            logger.warning("error=<%s> | the profile could not be read, the memories are told without it", type(error).__name__)
            with self._lock:
                return self._late.pop(owner, None)
        with self._lock:
            self._late.pop(owner, None)
        return profile

    def _ask(self, owner: Owner) -> Future[Profile | None]:
        with self._lock:
            asked = self._asked.get(owner)
            if asked is None:
                if len(self._asked) >= _MOST_THREADS:
                    raise TimeoutError("the source has not answered as many reads as may wait")
                asked, context = Future(), contextvars.copy_context()
                work = threading.Thread(target=context.run, args=(self._answer, owner, asked), name="profile", daemon=True)
                work.start()
                self._asked[owner] = asked
            return asked

    def _answer(self, owner: Owner, asked: Future[Profile | None]) -> None:
        profile, error = None, None
        try:
            answer = self._source.read(owner.user_id, tenant=owner.tenant)
            profile = None if answer is None else self._checked(answer)
        except BaseException as raised:  # noqa: BLE001 - whoever waits for the answer is told
            error = raised if isinstance(raised, Exception) else RuntimeError(type(raised).__name__)
        with self._lock:
            self._asked.pop(owner, None)
            if error is None:
                self._late.pop(owner, None)
                self._late[owner] = profile
                if len(self._late) > _MOST_LATE:
                    del self._late[next(iter(self._late))]
        if error is None:
            asked.set_result(profile)
        else:
            asked.set_exception(error)

    def _checked(self, answer: object) -> Profile:
        profile, dropped = profile_of(answer)
        for name in dropped:
            if name not in self._warned:
                self._warned.add(name)
                logger.warning("field=<%s> | a profile's field is left out, as it has another type", name)
        return profile


_readers: weakref.WeakSet[ProfileReader] = weakref.WeakSet()


def _renew_after_fork() -> None:
    for reader in list(_readers):
        reader._reset()  # noqa: SLF001


at_fork(after_in_child=_renew_after_fork)
