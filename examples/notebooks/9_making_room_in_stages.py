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
# # 9. Making room in stages, and instruction files
#
# **What you will see:**
# a history that stays unchanged until the window is nearly full, the stages that then make
# room one after the other, the tool that reads a truncated result again, and the instruction
# files that stay in the system prompt.
#
# `ImportanceWeightedConversationManager` keeps a fixed budget from the first turn on.
# `TieredCompactionConversationManager` changes nothing until a request fills 80 % of the model's
# window, or less where a summary needs room. It then starts with the changes that cost the
# model least.

# %%
import json
import logging
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from strands import Agent, tool

from strands_manga_memory import (
    InstructionFiles,
    MangaMemory,
    TieredCompactionConversationManager,
)
from strands_manga_memory.messages.texts import estimate_tokens
from strands_manga_memory.testing import ScriptedModel

logging.disable(logging.WARNING)

# %% [markdown]
# ## A conversation with large tool results
#
# Every third question looks at the stock of a warehouse: 40 rows of JSON. The scripted model
# has a window of 8,000 tokens.


# %%
@tool
def stock(warehouse: str) -> str:
    """Return the stock of a warehouse."""
    rows = [
        {
            "asin": f"B07X{number:04}",
            "copies": number % 7,
            "shelf": f"{warehouse}-{number}",
        }
        for number in range(40)
    ]
    return json.dumps(rows)


def texts_of(messages):
    """Return the texts of messages, tool inputs and tool results."""
    for block in (block for message in messages for block in message["content"]):
        if "toolResult" in block:
            yield from (item["text"] for item in block["toolResult"]["content"])
        else:
            yield block.get("text") or json.dumps(block["toolUse"]["input"])


def reply(messages):
    last = messages[-1]["content"]
    if any("toolResult" in block for block in last):
        return "Here is the stock of the warehouse."
    if "Thank you" in last[-1]["text"]:
        return "You're welcome!"
    if "warehouse" not in last[-1]["text"]:
        return (
            "I have noted the series of this reader, and will look for its next volume."
        )
    name = last[-1]["text"].split()[-1].rstrip("?")
    use = {
        "toolUseId": f"call-{len(messages)}",
        "name": "stock",
        "input": {"warehouse": name},
    }
    return [{"toolUse": use}]


model = ScriptedModel(reply)
manager = TieredCompactionConversationManager(window=8_000)
agent = Agent(
    model=model,
    tools=[stock],
    conversation_manager=manager,
    callback_handler=None,
)

tokens, freed, truncated = [], {}, []
for number in range(60):
    if number % 3 == 0:
        agent(f"What is in warehouse W{number}?")
    elif number % 3 == 1:
        agent(f"Please note that reader number {number} collects series {number}.")
    else:
        agent("Thank you!")
    # the summarizer asks the same model, without tools
    last = [request for request in model.requests if request.tool_specs][-1]
    tokens.append(sum(map(estimate_tokens, texts_of(last.messages))))
    truncated += [
        text for text in texts_of(agent.messages) if "read_cut_message" in text
    ]
    for name, stage in manager.stats().stages.items():
        freed.setdefault(name, []).append(stage.freed)

# %%
# Picture: Two charts: requests of 60 turns stay below the window, because stages
# start at two thirds of it; micro-compaction freed most tokens, summaries some.
figure, (above, below) = plt.subplots(
    2, 1, figsize=(9, 5), sharex=True, layout="constrained"
)
turns = range(1, 61)
above.plot(turns, tokens, marker=".")
above.axhline(8_000, color="tab:red", linestyle="--")
above.axhline(manager.thresholds(agent).trigger, color="tab:orange", linestyle="--")
above.set(
    ylabel="tokens",
    ylim=(0, 8_800),
    title="Size of each turn's last request; the window (red), "
    "and the size that starts the stages (orange)",
)
for name, values in freed.items():
    below.step(turns, values, where="mid", label=name)
below.set(
    xlabel="turn", ylabel="tokens", title="Tokens that each stage has freed so far"
)
below.legend(fontsize=8)
plt.show()

# %%
for name, stage in manager.stats().stages.items():
    print(
        f"{name:<24} tried {stage.runs:>2} times, enough {stage.enough:>2}, "
        f"freed {stage.freed:>6,}"
    )
assert max(tokens) < 8_000
assert sum(stage.freed for stage in manager.stats().stages.values()) > 0

# %% [markdown]
# ## Reading a truncated result again
#
# A truncated result keeps its keys and identifiers, and names the tool that returns the rest.

# %%
text = truncated[-1]
print(text[:300])
name = text.partition("read_cut_message('")[2][:8]
again = agent.tool.read_cut_message(name=name)
print(len(str(again["content"])), "characters were read again")
assert len(str(again["content"])) > len(text)

# %% [markdown]
# ## Instruction files
#
# Rules that must hold in every turn do not belong into the history. `AGENT.md` and `MEMORY.md`
# of a folder stay in the system prompt, read once, within 16 KB.

# %%
folder = Path(tempfile.mkdtemp())
(folder / "AGENT.md").write_text(
    "Answer in at most two sentences.\nPrices include tax.\n"
)
(folder / "MEMORY.md").write_text("The shop is closed on Wednesdays.\n")

greeter = ScriptedModel(["We are closed on Wednesdays."])
memory = MangaMemory.open(durable=f"sqlite:///{folder}/memory.sqlite3")
agent = memory.agent(
    greeter,
    user_id="keiko",
    session_id="s1",
    instructions=InstructionFiles([folder], allow=[folder]),
    callback_handler=None,
)
agent("When are you open?")
prompt = str(greeter.requests[-1].system_prompt).replace(str(folder), "FOLDER")
print(prompt)
assert "closed on Wednesdays" in prompt
assert "Prices include tax" in prompt

# %% [markdown]
# A file that a tool of the agent could change is refused, since a prompt injection might rewrite
# the model's own rules. `allow=` names the folders that you trust anyway.


# %%
@tool
def write_note(text: str) -> str:
    """Write a note."""
    return "written"


refused = InstructionFiles([folder]).read([write_note.tool_spec])
allowed = InstructionFiles([folder], allow=[folder]).read([write_note.tool_spec])
print(f"refused: {len(refused)} characters; allowed: {len(allowed)} characters")
assert "Wednesdays" not in refused
assert "Wednesdays" in allowed
memory.close()

# %% [markdown]
# This is the last notebook. [Choosing the parts](../../strands_manga_memory/guide/choosing.md)
# compares the managers.
