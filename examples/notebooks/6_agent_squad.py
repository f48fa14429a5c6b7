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
# # 6. Agent Squad
#
# **What you will see:**
# two users with the same session id and separate histories, a restart in the middle of a conversation, one history for
# the squad and its agents, and turns that wait for each other only within a conversation.
#
# [Agent Squad](https://github.com/awslabs/agent-squad) routes each message to one of several agents. Its own Strands
# agent is one object for all users, and receives the history as text. `SessionStrandsAgent` builds an agent for each
# request, with the session of its user. `SessionChatStorage` reads the squad's history from the logs of these sessions.
#
# The shop of `examples/squad.py` has three agents: products, orders and escalation. Its classifier looks for words, and
# its models follow a script.

# %%
import asyncio
import logging
import sys
import tempfile
import time

import matplotlib.pyplot as plt
from agent_squad.agents import AgentOptions
from agent_squad.orchestrator import AgentSquad
from strands import Agent
from strands.hooks import BeforeModelCallEvent

sys.path.insert(0, "..")  # the other examples
from squad import FIRST_VISIT, SECOND_VISIT, SESSION, KeywordClassifier, Shop

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.squad import SessionChatStorage, SessionStrandsAgent
from strands_manga_memory.testing import ScriptedModel

logging.disable(logging.WARNING)
folder = tempfile.mkdtemp()
memory = MangaMemory.open(durable=f"sqlite:///{folder}/shop.sqlite3", memories=True)

# %% [markdown]
# ## Two users, one session id
#
# Hanako and Taro use the same session id. Each has their own session, because a session belongs to its user.

# %%
shop = Shop(memory)
answers = [await shop.ask(user, text) for user, text in FIRST_VISIT]
memory.close()

# %% [markdown]
# The order agent handed Hanako's complaint over with a note. The escalation agent reads the note once, with her next
# message.
#
# ## A restart
#
# The memory is closed and opened again. The escalation agent still has the note, Taro does not see Hanako's order, and
# the product agent knows Hanako's favourite genre.

# %%
memory = MangaMemory.open(durable=f"sqlite:///{folder}/shop.sqlite3", memories=True)
shop = Shop(memory)
answers += [await shop.ask(user, text) for user, text in SECOND_VISIT]

assert [agent for agent, _ in answers] == [
    "products",
    "products",
    "orders",
    "orders",
    "escalation",
    "orders",
    "products",
]
assert answers[4][1].startswith("I have read it: Order 17 is three weeks late")
assert answers[5][1] == "Order 17 is not yours."
assert answers[6][1] == "Some more horror, perhaps."

# %% [markdown]
# ## One history
#
# Each agent has its own conversation, whose tool calls the others do not see. The squad's classifier receives the texts
# of all these conversations of a user, in order of time.

# %%
for user in ("hanako", "taro"):
    print(user)
    for agent_id in ("products", "orders", "escalation"):
        manager = memory.session(ConversationScope(user, SESSION, agent_id))
        blocks = [
            next(iter(block))
            for message in manager.history()
            for block in message["content"]
        ]
        print(f"  {agent_id:<11} {' '.join(blocks) or 'no messages of this user'}")
log = str(list(memory.session(ConversationScope("taro", SESSION, "orders")).history()))
assert "three weeks" not in log

seen = await SessionChatStorage(memory).fetch_all_chats("hanako", SESSION)
print("\nthe history of hanako that the classifier receives")
for message in seen:
    print(f"  {message.role:<9} {message.content[0]['text']}")
assert [message.role for message in seen] == ["user", "assistant"] * 5

# %% [markdown]
# ## Concurrent requests
#
# Two users send two messages each, all at once. Requests of one conversation wait for one another, those of different
# conversations run at the same time. To prove it, the first turn of each user waits until that of the other has begun.

# %%
# Picture: Bar chart: the two turns of each user follow one another, the turns of the
# two users overlap.
spans, begun, both = [], {}, asyncio.Event()


def slow(scope):
    """Build an agent with slow answers that records the time of each."""

    async def begin_turn(event):
        begun[scope.user_id] = time.perf_counter()
        if len(begun) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 20)

    def reply(messages):
        spans.append(
            (
                scope.user_id,
                messages[-1]["content"][0]["text"],
                begun[scope.user_id],
                time.perf_counter(),
            )
        )
        return "Noted."

    agent = Agent(
        model=ScriptedModel(reply, delay=0.3),
        callback_handler=None,
        **memory.agent_kwargs(**vars(scope)),
    )
    agent.add_hook(begin_turn, BeforeModelCallEvent)
    return agent


squad = AgentSquad(storage=SessionChatStorage(memory), classifier=KeywordClassifier())
squad.add_agent(
    SessionStrandsAgent(
        AgentOptions(name="Products", description="titles"), slow, hot=memory.hot
    )
)
begin = time.perf_counter()
await asyncio.gather(
    *(
        squad.route_request(f"message {number}", user, "all-at-once")
        for number in (1, 2)
        for user in ("hanako", "taro")
    )
)

figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
for user, text, start, end in spans:
    axes.barh(
        user,
        end - start,
        left=start - begin,
        edgecolor="white",
        color="tab:blue" if "1" in text else "tab:cyan",
    )
    axes.text(
        (start + end) / 2 - begin,
        user,
        text,
        ha="center",
        va="center",
        color="white",
        fontsize=8,
    )
axes.set(
    xlabel="seconds",
    title="Turns of one user follow one another, those of two users overlap",
)
plt.show()

# %%
for user in ("hanako", "taro"):
    first, second = (span for span in spans if span[0] == user)
    assert first[3] <= second[2], "never two turns of one conversation at a time"
    assert {first[1], second[1]} == {"message 1", "message 2"}
    log = list(
        memory.session(ConversationScope(user, "all-at-once", "products")).history()
    )
    assert [message["role"] for message in log] == ["user", "assistant"] * 2, (
        "their messages do not mix"
    )
    assert [message["content"][0]["text"] for message in log[::2]] == [
        first[1],
        second[1],
    ]
(_, _, begun_a, ended_a), (_, _, begun_b, ended_b) = spans[:2]
assert max(begun_a, begun_b) < min(ended_a, ended_b), (
    "turns of different conversations overlap"
)
memory.close()

# %% [markdown]
# Next: [7. Cost and capacity](7_cost_and_capacity.ipynb)
