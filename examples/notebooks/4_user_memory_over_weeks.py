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
# # 4. User memory over weeks
#
# **What you will see:**
# the memories of a user after each of 14 visits, the text about the user in the first request of a session, a pattern
# derived from several visits, the decay of memories, and the deletion of a user.
#
# When a session ends, it becomes memories: preferences without an end, a summary for 90 days, patterns for 30. The
# next session begins with a text about the user of at most 800 tokens. Here one user visits a shop 14 times in 16
# weeks, and then stays away. The clock is simulated, so the notebook takes seconds.

# %%
import logging
import re
import tempfile

import matplotlib.pyplot as plt
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.conversation import default_counter
from strands_manga_memory.memory.memory_search import score
from strands_manga_memory.memory.records import RETENTION, MemoryRecord, MemoryType
from strands_manga_memory.testing import FakeClock, ScriptedModel

logging.getLogger("strands_manga_memory").setLevel(logging.ERROR)
DAY = 86_400.0
START = 1_767_312_000.0  # 2 January 2026
clock = FakeClock(START)
memory = MangaMemory.open(
    durable=f"sqlite:///{tempfile.mkdtemp()}/shop.sqlite3", memories=True, clock=clock
)

# %% [markdown]
# ## The visits
#
# Each visit is one session. The user asks for horror several times; on day 72 the favourite genre changes.

# %%
VISITS = {
    0: [
        "Hello! My favorite genre is horror, and please answer in English.",
        "Is volume 3 of 『Uzumaki』 in stock?",
    ],
    4: ["Do you have more horror like 『Uzumaki』?", "I prefer hardcover editions."],
    9: ["Where is my order ORD-48213?", "Great service, thank you!"],
    16: ["Any new horror this week?", "My budget is 3000 yen."],
    23: ["I am looking for horror again.", "Is volume 4 of 『Uzumaki』 out?"],
    30: ["Hello, is order ORD-48377 on its way?"],
    38: ["Show me horror with short chapters, please.", "Thanks!"],
    45: ["My daughter Hina likes 『よつばと』. Do you have volume 2?"],
    58: ["Can I return 『Tomie』? It arrived damaged.", "That is disappointing."],
    72: ["My favorite genre is mystery now.", "What do you recommend?"],
    80: ["More mystery, please. Is 『Monster』 in stock?"],
    93: [
        "I would like mystery with a detective.",
        "Please reserve volume 1 of 『Monster』.",
    ],
    107: ["Is volume 2 of 『Monster』 in stock?"],
    112: ["Where is my order ORD-51002?"],
}


def visit(day):
    """Run and finalize a session; return the user's context in its first request."""
    scope = ConversationScope("hanako", f"day-{day}")
    model = ScriptedModel(
        lambda _: "Let me look. Yes, that can be done, and I have noted it."
    )
    agent = Agent(
        model=model,
        callback_handler=None,
        **memory.agent_kwargs(user_id="hanako", session_id=scope.session_id),
    )
    for text in VISITS[day]:
        clock.advance(60)
        agent(text)
    clock.advance(2 * 3_600)
    memory.finalize(scope)
    first = model.requests[0]
    return f"{first.system_prompt_content}\n{first.messages[-1]['content']}".replace(
        "\\n", "\n"
    )


# %% [markdown]
# ## Day by day
#
# Each evening this cell counts the memories by type, and the tokens of the text for the next session.

# %%
# Picture: Two charts over 215 days: preferences stay, summaries, episodes and
# patterns end one after another; the text for the next session stays below 800
# tokens.
TYPES = (
    "preference",
    "interaction_summary",
    "episode",
    "behavioral_pattern",
    "weekly_rollup",
    "monthly_rollup",
)
days = list(range(215))
counts = {type_: [] for type_ in TYPES}
contexts, sizes = {}, []
for day in days:
    clock.advance(START + day * DAY - clock())
    if day in VISITS:
        contexts[day] = visit(day)
    user = memory.user("hanako")
    for type_ in TYPES:
        counts[type_].append(len(user.recall(type=type_, limit=100)))
    sizes.append(
        default_counter().count(
            {"role": "user", "content": [{"text": user.build_agent_context()}]}
        )
    )
    clock.advance(0.5 * DAY)

figure, (above, below) = plt.subplots(
    2, 1, figsize=(9, 6), sharex=True, layout="constrained"
)
for type_, values in counts.items():
    above.step(
        days,
        values,
        where="post",
        label=type_,
        linestyle="--" if type_ == "episode" else "-",
    )  # one for each summary
above.plot(list(VISITS), [-0.7] * len(VISITS), "k^", markersize=5, label="a visit")
above.set(ylabel="memories", title="Stored memories: each type has its own retention")
above.legend(fontsize=8, loc="upper right")
below.plot(days, sizes)
below.axhline(800, color="grey", linestyle=":", linewidth=1)
below.set(
    xlabel="day",
    ylabel="tokens",
    ylim=(0, 850),
    title="Text for the next session: at most 800 tokens",
)
plt.show()

assert max(sizes) <= 800
assert counts["preference"][-1] == max(counts["preference"]) > 0, "preferences stay"
assert counts["interaction_summary"][112] > counts["interaction_summary"][-1] == 0, (
    "summaries end after 90 days"
)

# %% [markdown]
# ## The text in the second and the last session
#
# A preference has one value: the new favourite genre replaced the old one.

# %%
for day in (4, 112):
    print(f"--- day {day}\n{contexts[day][:1_000]}\n")
genres = {day: re.search(r"genre: (\w+)", text) for day, text in contexts.items()}
assert genres[0] is None, (
    "the first request has no memories, and the turn itself has the preference"
)
assert [genres[day][1] for day in (4, 58, 80, 112)] == [
    "horror",
    "horror",
    "mystery",
    "mystery",
]
assert "Uzumaki" in contexts[4]

# %% [markdown]
# ## A pattern
#
# A topic of three sessions within 30 days becomes a pattern, which expires 30 days after the last of them.

# %%
pattern_days = [
    day
    for day, number in zip(days, counts["behavioral_pattern"], strict=True)
    if number
]
print(f"there was a pattern from day {pattern_days[0]} to day {pattern_days[-1]}")
assert pattern_days[0] <= 23
assert pattern_days[-1] < max(VISITS) + 31

# %% [markdown]
# ## Decay
#
# The rank of a memory depends on its importance and on the time since it was learned or last used. Preferences keep
# their rank. The other types lose half of their recency with each half-life, until they expire.

# %%
# Picture: Line chart of the value of a memory by its age: preferences keep theirs;
# patterns end after 30 days, summaries and episodes after 90, feedback after 180.
figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
for type_ in (
    MemoryType.PREFERENCE,
    MemoryType.FEEDBACK,
    MemoryType.SUMMARY,
    MemoryType.EPISODE,
    MemoryType.PATTERN,
):
    rule = RETENTION[type_]
    record = MemoryRecord(
        memory_id="m",
        type=type_,
        content="",
        importance=rule.importance,
        created_at=0.0,
        updated_at=0.0,
        expires_at=rule.expires_at(0.0),
    )
    ages = [age for age in range(200) if not record.expired(age * DAY)]
    worth = [score(record, now=age * DAY, half_life=rule.half_life) for age in ages]
    [line] = axes.plot(ages, worth, label=str(type_))
    if ages[-1] < 199:
        axes.plot(ages[-1], worth[-1], "x", color=line.get_color())
axes.set(
    xlabel="days since it was learned",
    ylabel="score",
    ylim=(0, 1),
    title="Score of a memory by age, until it expires (x)",
)
axes.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Deletion of a user
#
# One call deletes all data of a user in all stores, verifies the deletion, and returns the counts.

# %%
report = memory.forget_user("hanako")
print(report.counts)
assert report.complete
assert memory.user("hanako").recall() == []
left = memory.user("hanako").build_agent_context()
print(left)
assert "mystery" not in left
memory.close()

# %% [markdown]
# Next: [5. Circuit breakers for tools](5_breakers.ipynb)
