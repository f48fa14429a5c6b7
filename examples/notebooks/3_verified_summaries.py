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
# # 3. Verified summaries
#
# **What you will see:**
# four bad summarizers, the facts that each of them loses, the repair of their summaries, and the tokens that a
# verified summary costs and saves over 200 turns.
#
# A summary shortens a long history, but the model that writes it may forget, invent, or refuse.
# `VerifiedSummarizingConversationManager` compares each summary with the original turns before it replaces them. It
# requests missing facts once more, and appends those that are still missing below the summary.
#
# Here each summarizer is a function, so that it fails in a known way.

# %%
import itertools
import logging
import sys

import matplotlib.pyplot as plt
from strands import Agent
from strands.agent.conversation_manager import SummarizingConversationManager

sys.path.insert(0, "..")  # the other examples
from summaries import ANSWER, FACTS, NO_LONGER, STILL_TRUE, prompt

from strands_manga_memory import VerifiedSummarizingConversationManager
from strands_manga_memory.conversation import default_counter
from strands_manga_memory.testing import ScriptedModel

logging.disable(logging.CRITICAL)
TURNS = 200
count = default_counter().count

# %% [markdown]
# ## Four bad summarizers
#
# One forgets every fact, one invents an order, one refuses, and one raises an error.

# %%
SUMMARIZERS = {
    "forgets": lambda _: (
        "The user asked about many series, and the assistant described them."
    ),
    "invents": lambda _: (
        "The user collects ghost stories. "
        "Order ORD-99999 was refunded with 250 dollars."
    ),
    "refuses": lambda _: "I'm sorry, but I can't help with that.",
    "fails": lambda _: ConnectionError("the model is down"),
}
TRUE_FROM = {
    value: next(turn for turn, text in FACTS.items() if value in text)
    for value in STILL_TRUE
}
print("turn of each fact:", TRUE_FROM)


# %%
def shown(agent):
    """Return all texts of the history that the model receives."""
    return "\n".join(
        block["text"]
        for message in agent.messages
        for block in message["content"]
        if "text" in block
    )


def hold(manager, summarizer, turns=TURNS):
    """Hold the conversation; return the agent, and each turn's tokens and facts."""
    agent = Agent(
        model=ScriptedModel(lambda _: ANSWER),
        aux_model=ScriptedModel(summarizer),
        conversation_manager=manager,
        callback_handler=None,
    )
    agent.model.update_config(
        context_window_limit=11_500
    )  # Strands' manager begins at 70 % of it, ours at 8,000 tokens
    sizes, shares = [], []
    for turn in range(1, turns + 1):
        agent(prompt(turn))
        if isinstance(manager, VerifiedSummarizingConversationManager):
            manager.finish(
                agent
            )  # the summary is written in the background, while a user types
        known = [value for value, since in TRUE_FROM.items() if since <= turn]
        text = shown(agent)
        sizes.append(sum(map(count, agent.messages)))
        shares.append(sum(value in text for value in known) / len(known))
    return agent, sizes, shares


# %% [markdown]
# ## A summarizer that forgets everything
#
# The second manager is Strands' own `SummarizingConversationManager`, with the same summarizer.

# %%
# Picture: Two line charts: each summary shortens the history; verified summaries show
# all facts after 200 turns, unverified ones less than a third.
verified = hold(VerifiedSummarizingConversationManager(), SUMMARIZERS["forgets"])
plain = hold(
    SummarizingConversationManager(proactive_compression=True), SUMMARIZERS["forgets"]
)

figure, (above, below) = plt.subplots(
    2, 1, figsize=(9, 6), sharex=True, layout="constrained"
)
for name, (_, sizes, shares) in (
    ("verified", verified),
    ("as the model wrote it", plain),
):
    above.plot(range(1, TURNS + 1), sizes, label=name)
    below.plot(range(1, TURNS + 1), shares, label=name)
above.set(ylabel="tokens of history", title="Each fall is a summary")
below.set(xlabel="turn", ylabel="facts in the history", ylim=(-0.05, 1.05))
below.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
below.legend(loc="lower left")
plt.show()

assert min(verified[2]) == 1.0, "no fact is ever missing"
assert min(plain[2]) < 0.7

# %% [markdown]
# The summarizer wrote only "The user asked about many series, and the assistant described them." The rules added the
# lists of facts. Of a corrected value only the new one remains. (Lines that end with "on your list?" are omitted here: the
# rules take each figure for a fact.)

# %%
agent = verified[0]
summary = "\n".join(message["content"][0]["text"] for message in agent.messages[:3])
print("\n".join(line for line in summary.splitlines() if not line.endswith(" list?")))
assert not [value for value in NO_LONGER if value in shown(verified[0])]

# %% [markdown]
# ## All four
#
# A summary with an order number that is in no turn is rejected. If a summarizer refuses or fails, the rules write the
# summary alone. After three failures in a row the summarizer is not called for a while.

# %%
header = (
    "summarizer",
    "facts shown",
    "invention shown",
    "most tokens",
    "summaries",
    "without prose",
    "asked",
)
print("".join(f"{name:>17}" for name in header))
for name, summarizer in SUMMARIZERS.items():
    agent, sizes, shares = hold(
        VerifiedSummarizingConversationManager(), summarizer, turns=100
    )
    stats = agent.conversation_manager.stats()
    invented = "ORD-99999" in shown(agent)
    row = (
        name,
        f"{min(shares):.0%}",
        str(invented),
        f"{max(sizes):,}",
        stats.swapped,
        stats.failed,
        stats.attempts,
    )
    print("".join(f"{value:>17}" for value in row))
    assert min(shares) == 1.0
    assert not invented
    assert stats.swapped

# %% [markdown]
# ## Where the tokens go
#
# The tokens that the model has read, summed over all turns. Without summaries the sum grows with the square of the
# number of turns. The red bar shows the tokens of the summarizer.

# %%
# Picture: Line chart: without summaries 200 turns read 2 million tokens, with
# verified summaries a fifth; the summarizer itself reads few.
per_turn = count({"role": "user", "content": [{"text": prompt(2)}]}) + count(
    {"role": "assistant", "content": [{"text": ANSWER}]}
)
without = list(itertools.accumulate(per_turn * turn for turn in range(1, TURNS + 1)))
summarized = list(itertools.accumulate(verified[1]))
spent = verified[0].conversation_manager.stats().tokens_spent
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
axes.plot(without, label="no summaries")
axes.plot(summarized, label="verified summaries")
axes.bar(
    TURNS, spent, width=4, color="tab:red", label=f"the summarizer: {spent:,} tokens"
)
axes.set(xlabel="turn", ylabel="tokens read so far", title="Tokens of a conversation")
axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1e6:.1f} M")
axes.legend()
plt.show()

assert summarized[-1] + spent < without[-1] / 1.5

# %% [markdown]
# In an application: `memory.agent(model, user_id=..., session_id=..., history="summarize")`. The rules find facts by
# their form, so they miss a wish without the usual words. [Evidence](../../strands_manga_memory/guide/evidence.md) has
# the rates on recorded dialogues.

# %% [markdown]
# Next: [4. User memory over weeks](4_user_memory_over_weeks.ipynb)
