# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. Circuit breakers for tools
#
# **What you will see:**
# a breaker that opens after five failures, admits one probe of a hundred callers, and closes again; then the breakers
# of a real MCP server, one of whose two tools fails, hangs and recovers; and four tools of `strands-agents-tools`.
#
# If a tool is down, each call waits for its timeout, and the model may call it again and again. After a few failures a
# circuit breaker rejects calls at once with an error for the model. From time to time it admits one call, a probe, and
# closes when the probe succeeds.

# %%
import logging
import os
import sys
from collections import Counter
from contextlib import chdir
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
from IPython.utils.capture import capture_output

sys.path.extend(["..", "../recipes"])  # the other examples
import guarded_tools
import strands_agents_tools

from strands_manga_memory.mcp import CircuitBreaker
from strands_manga_memory.testing import FakeClock

logging.disable(logging.WARNING)

# %% [markdown]
# ## The breaker alone
#
# A breaker does no I/O and takes a clock, so this cell simulates an outage of two minutes at once. There is a call
# every two seconds; while the tool is down, each call waits 2 s for its timeout.

# %%
OUTAGE = (60.0, 180.0)
TIMEOUT, EVERY, UNTIL = 2.0, 2.0, 300.0


def play(**settings):
    """Return the calls as (second, outcome, seconds waited in vain until then)."""
    clock = FakeClock(0.0)
    breaker = CircuitBreaker(**settings, clock=clock) if settings else None
    calls, waited = [], 0.0
    while clock() < UNTIL:
        permit = breaker.try_acquire() if breaker else None
        if breaker and permit is None:
            outcome = "rejected at once"
        elif OUTAGE[0] <= clock() < OUTAGE[1]:
            outcome = "timed out"
            waited += TIMEOUT
        else:
            outcome = "answered"
        if permit:
            permit.success() if outcome == "answered" else permit.failure()
        calls.append((clock(), outcome, waited))
        clock.advance(EVERY)
    return calls


plays = {
    "no breaker": play(),
    "5 failures, 30 s (the defaults)": play(failures=5, reset_after=30.0),
    "the same, wait doubled": play(failures=5, reset_after=30.0, max_reset_after=300.0),
    "3 failures, 10 s": play(failures=3, reset_after=10.0),
}

# %%
# Picture: Two charts of an outage of two minutes: without a breaker users wait two
# minutes in total, with a breaker less than half a minute.
COLOURS = {
    "answered": "tab:green",
    "timed out": "tab:red",
    "rejected at once": "lightgrey",
}
figure, (above, below) = plt.subplots(
    2, 1, figsize=(9, 6), sharex=True, layout="constrained", height_ratios=[1, 1.2]
)
for name, calls in plays.items():
    for outcome, colour in COLOURS.items():
        seconds = [at for at, seen, _ in calls if seen == outcome]
        above.scatter(
            seconds,
            [name] * len(seconds),
            color=colour,
            s=14,
            label=outcome if name == "no breaker" else None,
        )
    below.plot(
        [at for at, _, _ in calls], [waited for _, _, waited in calls], label=name
    )
for axes in (above, below):
    axes.axvspan(*OUTAGE, color="tab:red", alpha=0.08)
above.invert_yaxis()
above.set_title(
    "Each dot is a call: answered (green), timed out (red), "
    "rejected at once (grey); the tool is down in the middle"
)
below.set(
    xlabel="seconds",
    ylabel="seconds",
    title="Seconds that users waited for timeouts, in total",
)
below.legend()
plt.show()

# %%
waits = {name: calls[-1][2] for name, calls in plays.items()}
back = {
    name: min(at for at, seen, _ in calls if seen == "answered" and at >= OUTAGE[1])
    - OUTAGE[1]
    for name, calls in plays.items()
}
for name in plays:
    print(
        f"{name:<32} waited {waits[name]:>4.0f} s for timeouts, "
        f"used the tool again {back[name]:>3.0f} s after it was back"
    )
assert waits["5 failures, 30 s (the defaults)"] < waits["no breaker"] / 5
assert back["5 failures, 30 s (the defaults)"] <= 30

# %% [markdown]
# After the outage a breaker stays open until its next probe. With a short `reset_after` it closes sooner, at the price
# of more probes. With a doubled wait it sends fewer probes to a tool that stays down, and closes later.
#
# ## One probe among a hundred callers
#
# After `reset_after` seconds a breaker admits exactly one call. A hundred callers at that moment wait for one timeout,
# not for a hundred.

# %%
clock = FakeClock(0.0)
breaker = CircuitBreaker(clock=clock)
for _ in range(5):
    breaker.try_acquire().failure()
assert breaker.state == "open"
clock.advance(30)
permits = [breaker.try_acquire() for _ in range(100)]
print(Counter("probe" if permit else "rejected" for permit in permits))
assert sum(permit is not None for permit in permits) == 1
next(permit for permit in permits if permit).success()
assert breaker.state == "closed"

# %% [markdown]
# ## A real MCP server
#
# `examples/guarded_tools.py` starts an MCP server as a child process, makes one of its tools fail, and repairs it.
# While the breaker is open, a repeated question gets the earlier answer, marked as stale. For a new question the model
# gets an error with the cause and the time of the next attempt.

# %%
story = guarded_tools.story()

# %%
# Picture: Timeline of two tools: the breaker of the stock tool opens after five
# errors, answers with a stale result, and closes after a successful probe; the price
# tool is not affected.
guarded_tools.plot(story)

# %%
outcomes = Counter(outcome for _, tool, outcome in story.calls if tool == "stock")
print(outcomes)
assert outcomes["tool_error"] >= 5
assert outcomes["stale"] >= 1
assert outcomes["circuit_open"] >= 1
assert all(
    outcome == "success" for _, tool, outcome in story.calls if tool == "price"
), "each tool has its own breaker"
assert [state for _, state in story.states] == [
    "closed",
    "open",
    "half_open",
    "open",
    "half_open",
    "closed",
]
assert not any("hunter2" in text for text in story.results), (
    "the password in the error of the server never reaches the model"
)

# %% [markdown]
# ## Tools of `strands-agents-tools`
#
# `guard_tool` takes these tools unchanged. The recipe `strands_agents_tools.py` calls four of them:
#
# - `file_read` reads a file next to `AGENT.md`, whose text is in the prompt.
# - `http_request` gets an answer of a shop. Then the shop fails, and the earlier answer replaces the missing one.
# - `use_aws` is asked to delete a table. Nobody consents, so the call is denied. That is no failure of the tool.
# - `handoff_to_user` ends the turn with a question. The user's next message answers it.

# %%
os.environ.pop("BYPASS_TOOL_CONSENT", None)
# The tools also print tables for a terminal: they are not shown.
with TemporaryDirectory() as folder, chdir(folder), capture_output():
    lines = list(strands_agents_tools.run())
print("\n\n".join(line.partition(" Max retries")[0] for line in lines))
assert "last good answer" in lines[4]
assert lines[4].endswith("in stock: 3")
assert lines[5].startswith("use_aws (error): Operation canceled")

# %% [markdown]
# Next: [6. Agent Squad](6_agent_squad.ipynb)
