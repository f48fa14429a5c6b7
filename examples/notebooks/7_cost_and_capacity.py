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
# # 7. Cost and capacity
#
# **What you will see:**
# the monthly cost of a million messages a day, the differences from a published design, the size of the tiers from a
# thousand to a billion messages a day, and the best TTL of the hot tier.
#
# `CostModel.measured` multiplies the requests and bytes of measured sessions, on a real DynamoDB API and a real Valkey,
# by dated prices. `CostModel.paper` is a published design with its own numbers. All larger loads are calculated, not
# measured. The command `strands-manga-memory cost` prints the same numbers.

# %%
import math
import random

import matplotlib.pyplot as plt

from strands_manga_memory.ops import (
    CostModel,
    Workload,
    differences,
    prices,
)
from strands_manga_memory.ops.advice import ttl_advice
from strands_manga_memory.telemetry.recording import LogHistogram

workload = Workload()
print(
    f"{workload.messages_per_day:,.0f} messages a day of {workload.users:,.0f} users, "
    f"{workload.turns_per_session:g} turns a session, "
    f"{workload.history_tokens:,.0f} tokens of history at most; "
    f"prices of {prices().date}"
)

# %% [markdown]
# ## A month at 1 million messages a day

# %%
# Picture: Bar chart of the stores' monthly cost: writes of DynamoDB are by far the
# largest part, before reads, Redis nodes and storage.
ours, paper = CostModel.measured(workload).cost(), CostModel.paper(workload).cost()
for name, cost in (("measured", ours), ("paper", paper)):
    print(
        f"{name:<9} Redis {cost.redis_usd_month:>4,.0f}   "
        f"DynamoDB {cost.dynamodb_usd_month:>4,.0f}   "
        f"tokens {cost.model_usd_month:>8,.0f} USD a month   "
        f"on {cost.nodes} x {cost.node}, prices of {cost.prices_date}"
    )
share = (ours.redis_usd_month + ours.dynamodb_usd_month) / ours.total_usd_month
print(f"\nthe stores are {share:.2%} of it; the tokens are the rest")

stores = {name: usd for name, usd in ours.parts.items() if not name.startswith("model")}
ordered = sorted(stores.items(), key=lambda part: part[1])
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
bars = axes.barh([name for name, _ in ordered], [usd for _, usd in ordered])
axes.bar_label(bars, fmt="{:,.0f}", padding=3)
axes.margins(x=0.12)
axes.set(xlabel="US dollars a month", title="Where the stores' money goes")
plt.show()

assert abs(sum(ours.parts.values()) - ours.total_usd_month) < 0.01
assert share < 0.02
assert 150 < paper.redis_usd_month < 230, "the paper's own sum, from its own inputs"
assert 60 < paper.dynamodb_usd_month < 100

# %% [markdown]
# ## Differences between the two designs

# %%
for each in differences(workload):
    print(
        f"{each.what:<32} paper {each.paper:>13,.2f}   "
        f"here {each.measured:>13,.2f}\n    {each.why}"
    )

# %% [markdown]
# ## The cost of the token budget
#
# Tokens cost 300 times as much as the stores, and the budget limits the tokens of each call. Histories of 10 turns
# seldom exceed the budget. In sessions of 60 turns the budget decides the cost.

# %%
# Picture: Line chart: with sessions of 60 turns, a larger budget of the history costs
# up to three times as much; with 10 turns it makes no difference from 2,048 tokens
# on.
budgets = [1_024, 2_048, 4_096, 8_192, 16_384, 32_768]
loads = {
    turns: [
        Workload(history_tokens=budget, turns_per_session=turns) for budget in budgets
    ]
    for turns in (10, 60)
}
monthly = {
    turns: [CostModel.measured(load).cost().total_usd_month for load in each]
    for turns, each in loads.items()
}
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for turns, each in monthly.items():
    axes.plot(
        budgets,
        [usd / 1000 for usd in each],
        marker="o",
        label=f"sessions of {turns} turns",
    )
axes.set(
    xscale="log",
    xlabel="tokens of history, at most",
    ylabel="thousand US dollars a month",
    title="1 million messages a day",
)
axes.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
axes.minorticks_off()
axes.set_ylim(bottom=0)
axes.legend()
plt.show()
assert all(each == sorted(each) for each in monthly.values())
assert monthly[60][2] < 0.6 * monthly[60][-1], (
    "4,096 tokens cost less than six tenths of everything"
)

# %% [markdown]
# ## From a thousand to a billion messages a day

# %%
loads = [10**exponent for exponent in range(3, 10)]
costs = [
    CostModel.measured(Workload(messages_per_day=load, users=load / 5)).cost()
    for load in loads
]
columns = ("nodes", "hot GB", "M writes", "M reads", "stored GB", "stores, USD")
print(f"{'messages a day':>15}" + "".join(f"{column:>12}" for column in columns))
writes = [(cost.use.write_units + cost.use.index_write_units) / 1e6 for cost in costs]
stored = [cost.use.stored_gb + cost.use.index_gb for cost in costs]
for load, cost, written, gigabytes in zip(loads, costs, writes, stored, strict=True):
    print(
        f"{load:>15,}{cost.nodes:>12,}{cost.use.hot_gb:>12,.1f}"
        f"{written:>12,.1f}{cost.use.read_units / 1e6:>12,.1f}"
        f"{gigabytes:>12,.1f}"
        f"{cost.redis_usd_month + cost.dynamodb_usd_month:>12,.0f}"
    )

# %%
# Picture: Line chart, logarithmic: storage, write units and memory of the hot tier grow
# in proportion to the messages a day.
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for label, values in {
    "GB in the tables": stored,
    "million write units a month": writes,
    "GB in the hot tier": [cost.use.hot_gb for cost in costs],
    "nodes": [cost.nodes for cost in costs],
}.items():
    axes.plot(loads, values, marker="o", label=label)
axes.set(
    xscale="log",
    yscale="log",
    xlabel="messages a day",
    title="Use of the stores in a month",
)
axes.legend()
plt.show()

assert [cost.nodes for cost in costs] == sorted(cost.nodes for cost in costs)

# %% [markdown]
# ## The TTL of the hot tier
#
# The resumption curve shows, for each TTL, the share of returning users whose conversation is still in the hot tier.
# It is calculated from the gaps between turns. These gaps are random; `strands-manga-memory ttl-advice` reads the
# recorded gaps of your deployment.

# %%
# Picture: Line chart: 94 % of returning users find their conversation in the hot tier
# if it stays there for 33 minutes; longer times add little.
chance = random.Random(1)
gaps = LogHistogram()
for median, spread, count in (
    (45.0, 0.9, 17_000),  # a conversation goes on
    (900.0, 0.6, 2_000),  # an interruption
    (18_000.0, 0.7, 1_000),  # another visit on the same day
):
    for _ in range(count):
        gaps.add(median * math.exp(chance.gauss(0.0, spread)))
advice = ttl_advice(gaps)
figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
axes.plot(
    [seconds / 60 for seconds, _ in advice.curve], [share for _, share in advice.curve]
)
for name, seconds, colour in (
    ("now", workload.ttl_seconds, "tab:orange"),
    ("the knee", advice.knee, "tab:green"),
):
    minutes = seconds / 60
    axes.axvline(minutes, color=colour, linestyle="--", linewidth=1)
    label = f"{name}: {minutes:,.0f} min, {advice.share_within(seconds):.0%}"
    axes.annotate(
        label,
        (minutes, 0.1),
        xytext=(-3, 0),
        textcoords="offset points",
        rotation=90,
        ha="right",
        fontsize=8,
    )
axes.set(
    xscale="log",
    xlabel="minutes in the hot tier",
    ylabel="returns within the TTL",
    ylim=(0, 1.02),
)
axes.set_title("The resumption curve")
axes.xaxis.set_major_formatter(lambda minutes, _: f"{minutes:g}")
axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
plt.show()

resumed = [
    advice.share_within(60 * minutes) for minutes in (1, 5, 15, 30, 60, 240, 1440)
]
assert resumed == sorted(resumed)
assert advice.share_within(advice.knee) > 0.85

# %% [markdown]
# Next: [8. Where the task stands](8_where_the_task_stands.ipynb)
