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
# # 8. Where the task stands
#
# **What you will see:**
# a reorder over six turns: its slots, entities, goal and phases, the text that the model
# receives about them, the time budget of a slow tool, and a second agent of the team that
# understands "Can you cancel it?".
#
# A long history does not tell a model where a task stands. `task_state` keeps that in typed
# values and puts a short text of them before the user's words.

# %%
import json
import logging
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
from strands import tool

from strands_manga_memory import DialogueSlot, MangaMemory
from strands_manga_memory.state import (
    coordinator_of,
    export_for_human,
)
from strands_manga_memory.testing import ScriptedModel

logging.disable(logging.WARNING)

folder = Path(tempfile.mkdtemp())
shop = {"tier": "premium", "cart": [{"asin": "B07X1234", "quantity": 1, "price": 2800}]}
memory = MangaMemory.open(
    durable=f"sqlite:///{folder}/shop.sqlite3",
    environment=lambda scope: shop,
)

# %% [markdown]
# ## The task: an intent and its slots
#
# A reorder needs a volume and an order. Each slot has the question that fills it, and the type
# of entity that fills it without a question.

# %%
REORDER = [
    DialogueSlot(
        name="volume", question="Which volume would you like?", entity="volume"
    ),
    DialogueSlot(name="order", question="Which order was it?", entity="order_id"),
]


@tool
def order_status(order_id: str) -> str:
    """Look up an order."""
    return json.dumps({"order_id": order_id, "status": "preparing"})


def call(number, name, **arguments):
    use = {"toolUseId": f"call-{number}", "name": name, "input": arguments}
    return [{"toolUse": use}]


model = ScriptedModel(
    [
        "Hello! How can I help?",
        call(1, "update_slots", intent="reorder"),
        "With pleasure. Which volume would you like?",
        "And which order was it?",
        call(2, "order_status", order_id="ORD-12345"),
        "It is being prepared. Shall I reorder volume 2?",
        "Done.",
        "You're welcome!",
    ]
)
agent = memory.agent(
    model,
    user_id="keiko",
    session_id="tuesday",
    tools=[order_status],
    task_state={"intents": {"reorder": REORDER}},
    callback_handler=None,
)
state = coordinator_of(agent)
state.goals.set("reorder a volume for a friend")

# %% [markdown]
# ## The conversation
#
# `received` returns the state in the latest request: the complete text about the task.


# %%
def received(model):
    blocks = [
        block for message in model.requests[-1].messages for block in message["content"]
    ]
    states = [b["text"] for b in blocks if "<conversation_state>" in b.get("text", "")]
    return (
        states[-1].split("<conversation_state>\n")[1].split("</conversation_state>")[0]
    )


turns = [
    "Hello!",
    "I would like to order a volume again, for a friend.",
    "Volume 2, please.",
    "It was ORD-12345. Where is it?",
    "Yes, please.",
    "Thanks, bye!",
]
phases, filled, texts = [], [], []
for text in turns:
    agent(text)
    dialogue = state.dialogue
    phases.append(str(dialogue.phase))
    filled.append(
        [name for name, slot in dialogue.slots.items() if slot.value is not None]
    )
    texts.append(received(model))
    known = {name: slot.value for name, slot in dialogue.slots.items()}
    print(f"{text:<52} {dialogue.phase:<17} {known}")

# %%
print(texts[3])
assert phases[0] == "greeting"
assert "slot_filling" in phases
assert phases[-1] == "farewell"
assert filled[-1] == ["volume", "order"]
assert "Goal: reorder a volume for a friend" in texts[3]

# %%
# Picture: Step chart: the phases of six turns go from greeting through slot filling
# and follow-up to farewell; both slots are filled from turn 4 on.
ORDER = ["greeting", "intent_detection", "slot_filling", "follow_up", "farewell"]
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
axes.step(
    range(1, 7), [ORDER.index(phase) for phase in phases], where="mid", marker="o"
)
for number, names in enumerate(filled, 1):
    label = f"{len(names)} of 2 slots" if number > 1 else ""
    axes.annotate(
        label,
        (number, ORDER.index(phases[number - 1])),
        (0, 8),
        textcoords="offset points",
    )
axes.set(
    xlabel="turn",
    yticks=range(5),
    yticklabels=ORDER,
    ylim=(-0.5, 4.7),
    xlim=(0.6, 6.9),
    title="Phase at the end of each turn, and the slots that have a value",
)
plt.show()

# %% [markdown]
# ## The time budget
#
# A task has three seconds. A tool that uses most of them leaves a note for the model: answer
# now. Here the budget is 300 ms, and the tool needs 250.


# %%
@tool
def slow_stock(title: str) -> str:
    """Look up stock, slowly."""
    time.sleep(0.25)
    return "3 copies"


hurried = ScriptedModel(
    [call(1, "slow_stock", title="Monster"), "Three copies are left."]
)
agent = memory.agent(
    hurried,
    user_id="keiko",
    session_id="wednesday",
    tools=[slow_stock],
    task_state={"time_budget_ms": 300},
    callback_handler=None,
)
agent("Is Monster in stock?")
print(received(hurried))
assert "time" in received(hurried).lower()

# %% [markdown]
# ## A second agent of the team
#
# The state belongs to the session. An agent for orders, with an empty history of its own, knows
# which order "it" is.

# %%
service = ScriptedModel(["I have cancelled ORD-12345."])
colleague = memory.agent(
    service,
    user_id="keiko",
    session_id="tuesday",
    agent_id="orders",
    task_state=True,
    callback_handler=None,
)
colleague("Can you cancel it?")
print(received(service))
assert len(service.requests[-1].messages) == 1
assert "ORD-12345" in received(service)

# %% [markdown]
# ## Handing over to a human
#
# The same values make the note for a colleague who takes the conversation over.

# %%
note = export_for_human(colleague, reason="wants to talk to somebody").to_markdown()
print(note[note.index("## Where it stands") : note.index("## The user")])
assert "ORD-12345" in note
memory.close()

# %% [markdown]
# Next: [9. Making room in stages](9_making_room_in_stages.ipynb)
