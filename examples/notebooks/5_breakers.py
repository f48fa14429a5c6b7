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
# a breaker open after five failures, let one probe of a hundred callers through, and close again; then
# the same on a real MCP server whose tool fails, hangs and recovers, beside a tool that never notices.
#
# A tool that is down makes everybody wait: each call runs into its timeout, and the model may try it again and again.
# A circuit breaker stops asking after a few failures, tells the model so at once, and looks from time to time whether
# the tool is back.

# %%
import logging
import sys
from collections import Counter

import matplotlib.pyplot as plt

sys.path.insert(0, "..")  # the other examples
import guarded_tools

from strands_manga_memory.mcp import CircuitBreaker
from strands_manga_memory.testing import FakeClock

logging.disable(logging.WARNING)

# %% [markdown]
# ## The breaker alone
#
# It does no I/O and takes a clock, so an outage of two minutes can be played in no time. Every two seconds a call is
# made; while the tool is down it waits 2 s for its timeout.

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
            came = "rejected at once"
        elif OUTAGE[0] <= clock() < OUTAGE[1]:
            came = "timed out"
            waited += TIMEOUT
        else:
            came = "answered"
        if permit:
            permit.success() if came == "answered" else permit.failure()
        calls.append((clock(), came, waited))
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
    for came, colour in COLOURS.items():
        seconds = [at for at, what, _ in calls if what == came]
        above.scatter(
            seconds,
            [name] * len(seconds),
            color=colour,
            s=14,
            label=came if name == "no breaker" else None,
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
    xlabel="seconds", ylabel="seconds", title="What users have waited for nothing"
)
below.legend()
plt.show()

# %%
waits = {name: calls[-1][2] for name, calls in plays.items()}
back = {
    name: min(at for at, what, _ in calls if what == "answered" and at >= OUTAGE[1])
    - OUTAGE[1]
    for name, calls in plays.items()
}
for name in plays:
    print(
        f"{name:<32} waited {waits[name]:>4.0f} s in vain, "
        f"used the tool again {back[name]:>3.0f} s after it was back"
    )
assert waits["5 failures, 30 s (the defaults)"] < waits["no breaker"] / 5
assert back["5 failures, 30 s (the defaults)"] <= 30

# %% [markdown]
# The price is on the right side of the picture: after the outage, a breaker stays open until its next probe. A short
# `reset_after` is back sooner and probes more; a wait that
# doubles is easier on a tool that stays down, and back later.
#
# ## One probe, also among a hundred
#
# When the time is over, exactly one call is let through. A hundred callers at that moment cost one timeout, not a
# hundred.

# %%
clock = FakeClock(0.0)
breaker = CircuitBreaker(clock=clock)
for _ in range(5):
    breaker.try_acquire().failure()
assert breaker.state == "open"
clock.advance(30)
permits = [breaker.try_acquire() for _ in range(100)]
print(Counter("the probe" if permit else "rejected" for permit in permits))
assert sum(permit is not None for permit in permits) == 1
next(permit for permit in permits if permit).success()
assert breaker.state == "closed"

# %% [markdown]
# ## The whole story, on a real MCP server
#
# `examples/guarded_tools.py` starts an MCP server as a child process, breaks one of its tools, and mends it. While
# the breaker is open, an earlier answer stands in for the same question; to another one the model is told what is
# wrong and when to try again.

# %%
told = guarded_tools.story()

# %%
# Picture: Timeline of two tools: the breaker of the stock tool opens after five
# errors, answers with a stale result, and closes after a successful probe; the price
# tool is not affected.
guarded_tools.plot(told)

# %%
came = Counter(what for _, tool, what in told.calls if tool == "stock")
print(came)
assert came["tool_error"] >= 5
assert came["stale"] >= 1
assert came["circuit_open"] >= 1
assert all(what == "success" for _, tool, what in told.calls if tool == "price"), (
    "one breaker a tool: the other never notices"
)
assert [state for _, state in told.states] == [
    "closed",
    "open",
    "half_open",
    "open",
    "half_open",
    "closed",
]
assert not any("hunter2" in text for text in told.results), (
    "what the server blurts out is cut before the model reads it"
)

# %% [markdown]
# Next: [6. In a team: Agent Squad](6_agent_squad.ipynb)
