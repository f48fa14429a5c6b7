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
# # 1. Token budget and importance
#
# **What you will see:**
# the size of a history of 200 turns with and without a budget, the facts that each manager still has at the end, the
# reason why each message was kept or dropped, the smallest budget that keeps all facts, and the effect on the prompt
# cache.
#
# A model reads the whole history with every call. A long chat becomes slow and expensive, and in the end exceeds the
# context window. `ImportanceWeightedConversationManager` keeps the history within a token budget and drops the least
# important messages first. This notebook compares it with dropping the oldest messages.
#
# You need no key and no server: the model follows a script.

# %%
import logging
import sys

import matplotlib.pyplot as plt
from strands import Agent
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
)

sys.path.insert(0, "..")  # the other examples
from summaries import ANSWER, FACTS, NO_LONGER, STILL_TRUE, prompt

from strands_manga_memory import (
    ImportanceWeightedConversationManager,
    PromptCacheMonitor,
)
from strands_manga_memory.conversation import default_counter
from strands_manga_memory.testing import ScriptedModel

logging.getLogger("strands_manga_memory").setLevel(logging.ERROR)
TURNS, BUDGET = 200, 1_500
tokens = default_counter().count

# %% [markdown]
# ## The conversation
#
# 200 turns about books. Eight of them state a fact that matters later: a name, an order, a wish, an address, a code, a
# reservation, and two corrections. The other 192 are ordinary questions to a shop.

# %%
for turn, fact in FACTS.items():
    print(f"turn {turn:>3}: {fact}")
print(f"\nturn   2: {prompt(2)}\nanswer  : {ANSWER[:80]}...")


# %%
def hold(manager):
    """Hold the conversation; return the agent, and the tokens after each turn."""
    agent = Agent(
        model=ScriptedModel(lambda messages: ANSWER),
        conversation_manager=manager,
        callback_handler=None,
    )
    sizes = []
    for turn in range(1, TURNS + 1):
        agent(prompt(turn))
        sizes.append(sum(map(tokens, agent.messages)))
    return agent, sizes


def shown(agent):
    """Return everything the model is shown of the history."""
    return "\n".join(
        block["text"]
        for message in agent.messages
        for block in message["content"]
        if "text" in block
    )


# %% [markdown]
# ## Three conversation managers
#
# The first keeps all messages, the second the last messages, the third a budget of 1,500 tokens. The sliding window
# has as many messages as fit into the same budget.

# %%
everything, all_sizes = hold(NullConversationManager())
per_message = all_sizes[-1] / (2 * TURNS)
window = int(BUDGET / per_message)
sliding, sliding_sizes = hold(SlidingWindowConversationManager(window_size=window))
ours, our_sizes = hold(ImportanceWeightedConversationManager(BUDGET))
names = ("everything", f"the last {window} messages", f"a budget of {BUDGET:,} tokens")

# %%
# Picture: Line chart: without a budget the history grows to over 20,000 tokens in 200
# turns; with the last messages or with a budget it stays below 1,500.
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
for name, curve in zip(names, (all_sizes, sliding_sizes, our_sizes), strict=True):
    axes.plot(range(1, TURNS + 1), curve, label=name)
axes.axhline(BUDGET, color="grey", linestyle=":", linewidth=1)
axes.set(
    xlabel="turn",
    ylabel="tokens of history",
    yscale="log",
    title="Tokens that the model reads with every call",
)
axes.legend()
plt.show()
assert max(our_sizes) <= BUDGET

# %% [markdown]
# Both small histories stay small, but they hold different facts:

# %%
facts = [
    [value for value in STILL_TRUE if value in shown(agent)]
    for agent in (everything, sliding, ours)
]
for name, found in zip(names, facts, strict=True):
    print(f"{name:<26} {len(found)} of {len(STILL_TRUE)}: {', '.join(found)}")

assert len(facts[1]) < len(STILL_TRUE) / 2
assert len(facts[2]) >= len(STILL_TRUE) - 1

# %% [markdown]
# The budget keeps all seven facts, the Japanese address included. (Every answer contains the word "hardcover", so each
# manager has that one.) Evicted messages can still be quoted: `HistoryRecall` searches them by their words.
#
# A corrected value may still be in the history, followed by its correction. Only a summary removes it:
# see [notebook 3](3_verified_summaries.ipynb).

# %%
for value in NO_LONGER:
    print(value, "is still shown" if value in shown(ours) else "is gone")
assert shown(ours).find("ORD-55210") > shown(ours).find("ORD-55120")

# %% [markdown]
# ## The outcome of each message
#
# `explain` returns a record for every message: its dialogue act, its signals (figures and names, new words, later
# references, recency and others), its score, and its outcome. The first and the last turn are always kept.

# %%
# Picture: Scatter chart of all messages by turn and score: almost all kept messages
# are the numbered ones with facts, and those of the last 50 turns.
outcomes = ours.conversation_manager.explain(ours)


def worth(record):
    """Return the sum of all signals of a message."""
    return sum(record.signals.values())


colours = {"dropped": "lightgrey", "shortened": "tab:orange", "kept": "tab:green"}
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
for outcome, colour in colours.items():
    points = [
        (1 + number / 2, worth(record))
        for number, record in enumerate(outcomes)
        if record.outcome == outcome
    ]
    axes.scatter(
        [turn for turn, _ in points],
        [value for _, value in points],
        s=16,
        color=colour,
        label=f"{outcome}: {len(points)}",
    )
for turn in FACTS:
    place = (turn, worth(outcomes[2 * (turn - 1)]))
    axes.annotate(
        str(turn),
        place,
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        fontsize=8,
    )
axes.set(
    xlabel="turn",
    ylabel="sum of signals, in log odds",
    title="Each message; the numbered turns state the facts",
)
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %%
for record in [record for record in outcomes if record.outcome == "kept"][:8]:
    print(
        f"{record.role:<9} {record.act:<12} score {record.score:.2f}  "
        f"{record.tokens:>3} tokens  {record.reason}"
    )
print()
for turn, text in FACTS.items():
    record = outcomes[2 * (turn - 1)]
    print(
        f"turn {turn:>3} {record.outcome:<8} {record.act:<11} "
        f"{record.reason:<24} {text}"
    )
assert (
    sum(outcomes[2 * (turn - 1)].outcome == "kept" for turn in FACTS) >= len(FACTS) - 1
)
assert all(outcomes[2 * (turn - 1)].score > 0.8 for turn in (1, 30, 66, 170)), (
    "preferences and corrections have high scores"
)

# %% [markdown]
# ## The smallest budget
#
# The same conversation with smaller budgets, and the sliding window with as many tokens.

# %%
# Picture: Line chart: by importance, all facts are kept from 300 tokens on; of the
# last messages, one fact in seven, at every budget.
budgets = [100, 150, 200, 300, 600, 1_500]
by_importance, by_age = [], []
for budget in budgets:
    for shares, manager in (
        (by_importance, ImportanceWeightedConversationManager(budget)),
        (
            by_age,
            SlidingWindowConversationManager(
                window_size=max(2, int(budget / per_message))
            ),
        ),
    ):
        text = shown(hold(manager)[0])
        shares.append(sum(value in text for value in STILL_TRUE) / len(STILL_TRUE))

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(budgets, by_importance, marker="o", label="by importance")
axes.plot(budgets, by_age, marker="o", label="the last messages")
axes.set(
    xscale="log",
    xlabel="budget in tokens",
    ylabel="facts in the last request",
    ylim=(-0.05, 1.05),
)
axes.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
axes.minorticks_off()
axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
axes.legend()
plt.show()

assert all(ours >= theirs for ours, theirs in zip(by_importance, by_age, strict=True))
assert min(by_importance[3:]) > 0.8 > max(by_age)

# %% [markdown]
# ## The prompt cache
#
# Providers read the beginning of a prompt from a cache if an earlier call had exactly the same beginning. Trimming in
# every turn changes the beginning each time. With `trim_every=8` a full history makes room for eight turns at once,
# and then only grows at its end. `PromptCacheMonitor` counts the requests that begin with the whole request before,
# here with a budget of 4,096.


# %%
# Picture: Line chart: once the history is full, the share of requests that begin with
# the whole request before falls if every turn trims, and stays high in steps.
def watched(manager):
    """Hold the conversation; return the share of whole prefixes after each turn."""
    monitor = PromptCacheMonitor()
    agent = Agent(
        model=ScriptedModel(lambda messages: ANSWER),
        conversation_manager=manager,
        plugins=[monitor],
        callback_handler=None,
    )
    shares = []
    for turn in range(1, TURNS + 1):
        agent(prompt(turn))
        shares.append(monitor.stats()["whole_prefixes"])
    return shares


every_turn = watched(ImportanceWeightedConversationManager(4_096))
in_steps = watched(ImportanceWeightedConversationManager(4_096, trim_every=8))

figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
axes.plot(every_turn, label="trimmed in every turn")
axes.plot(in_steps, label="trimmed in steps")
axes.set(
    xlabel="turn",
    ylabel="requests with a whole prefix",
    title="Requests that begin with the whole request before",
    ylim=(0, 1.05),
)
axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
axes.legend()
plt.show()

for name, shares in (("in every turn", every_turn), ("in steps", in_steps)):
    print(f"trimmed {name}: {shares[-1]:.0%} begin with the whole request before")
assert in_steps[-1] >= 0.85 > every_turn[-1]

# %% [markdown]
# ## In an application
#
# ```python
# agent = Agent(model=model, conversation_manager=ImportanceWeightedConversationManager(4096))
# ```
#
# With a session that survives a restart: `memory.agent(model, user_id=..., session_id=...)`. This conversation was
# invented. [Evidence](../../strands_manga_memory/guide/evidence.md) has the results on five recorded data sets, and
# the cases where the method loses.

# %% [markdown]
# Next: [2. Two tiers and a killed worker](2_tiers_kill_and_restore.ipynb)
