"""Requests: agents that are built for one request each, as a web worker builds them, so that each turn has a new writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.messages import for_model, problems

if TYPE_CHECKING:
    from tests.faults.simulation.world import Process, World

MOST_AT_ONCE = 3
"""Requests that are served at the same time."""


def serve(world: World, process: Process, *, tools: int, drop: int, form: str, ends: str) -> None:
    """Serve a request with an agent that has just restored its conversation.

    Args:
        world: Where it is served.
        process: The worker.
        tools: Number of tool calls.
        drop: Number of turns that the conversation manager evicts.
        form: See ``World.finish_turn``.
        ends: ``"closed"``, ``"saved"`` (the agent is discarded), or ``"unanswered"`` (the worker dies in the turn).
    """
    world.ask(process)
    for number in range(2 * tools):
        world.call_or_answer(process)
        if number % 2 == 0:
            process.capture(in_turn=True)
            world.wait_for(process, process.core.save())
    if ends == "unanswered":
        process.capture(in_turn=True)
        world.wait_for(process, process.core.save())
        world.kill(process)
        return
    world.finish_turn(process, drop, form)
    world.wait_for(process, process.core.close() if ends == "closed" else process.core.save())


def stored_turns(world: World) -> set[str]:
    """Return the ids of the messages of finished turns that are stored as a whole, and that no conversation manager dropped."""
    stored = world.engine.ids_in_hot(world.store) | world.ids_in_durable()
    for task in world.schedule.tasks:  # the log has these turns, and no head yet: they come back with the flush that stands
        if not task.is_timer and task.owner in world.cores:
            stored -= world.cores[task.owner].being_flushed
    whole = world.whole - world.dropped_turns - {turn for id_, turn in world.said.items() if id_ not in stored}
    return {id_ for id_ in stored if world.said.get(id_) in whole}


def check_restored(world: World, name: str, live: list[Any], expected: set[str], shown: set[str]) -> None:
    """Raise ``AssertionError`` if a restored history lacks a stored turn, or if no valid request can be made of it."""
    found = problems(for_model(live))
    assert not found, f"request: {found} of {live}, restored by {name}"
    if any(id_.startswith("unreadable") for id_ in world.dropped | shown):
        return
    missing = sorted(expected - shown, key=lambda id_: int(id_[1:]))
    assert not missing, f"not restored: {missing} by {name}"


def go_by(world: World, owner: str) -> None:
    """Let a process go on until it has nothing more to do but to wait, while all others stand."""
    while tasks := [task for task in world.schedule.tasks if task.owner == owner and not task.is_timer and task.is_ready()]:
        world.schedule.go_on(tasks[0])
        world.look()


def begin(world: World, tools: int, drop: int, form: str, ends: str, *, looks: bool = True) -> str:
    """Begin a request, served by a process of its own; return that process's name.

    For the arguments see :func:`serve`; ``looks`` says whether the restored history is checked.
    """
    world.started += 1
    name = f"r{world.started}"
    machine = world.machine(name)
    world.serving.add(name)

    def work() -> None:
        process = None
        try:
            core = world.cores[name] = world.engine.core(machine)
            is_calm, troubles = looks and world.is_calm, world.troubles
            expected = stored_turns(world) if is_calm else set[str]()
            live = core.open() or []
            world.takes_over(live)
            if is_calm and troubles == world.troubles:
                expected -= {id_ for id_ in expected if world.said[id_] in world.dropped_turns}
                check_restored(world, name, live, expected, world.ids_of(live))
            process = world.enter(name, core, machine.writer, live)
            serve(world, process, tools=tools, drop=drop, form=form, ends=ends)
        except StoreUnavailableError:
            pass
        finally:
            world.serving.discard(name)
            if process in world.processes:
                world.leave(process)

    world.spawn(name, work)
    return name
