# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # ISR and ELR, at any offset
# The in-sync, eligible and last known replicas of a topic's partitions as they were after any record, how they got there, and
# the ELR that the shipped rules would give beside the recorded one.

# %% tags=["parameters"]
PATH = "samples/elr-06-kill-13-last-replica.tgz"
CLUSTER = ""
TOPIC = ""  # empty: the topic with most changes
OFFSET = -1  # -1: the end of the log

# %%
import altair as alt
from IPython.display import Markdown

import kraft_audit
from kraft_audit.text.notebook_output import frame, markdown_text, show_offline, what_happened

show_offline()
(cluster,) = kraft_audit.open(PATH, cluster_id=CLUSTER)
what_happened(cluster)

# %%
changes = frame(cluster.table("partition_changes")).sort_values("from_offset")
topic = TOPIC or changes["topic"].value_counts().index[0]
offset = OFFSET if OFFSET >= 0 else int(changes["from_offset"].max())
theirs = changes[changes["topic"] == topic]
Markdown(
    f"Topic **{markdown_text(topic)}** of cluster **{markdown_text(cluster.cluster_id)}**, as after offset **{offset}**."
)

# %% [markdown]
# ## As it was then

# %%
state = theirs[theirs["from_offset"] <= offset].groupby("partition").tail(1)
columns = [
    "partition",
    "leader",
    "leader_epoch",
    "replicas",
    "isr",
    "elr",
    "last_known_elr",
    "effective_min_isr",
    "high_watermark_can_advance",
]
state[state["exists"]][columns].sort_values("partition")

# %% [markdown]
# ## How it got there

# %%
ledger = [
    "from_offset",
    "time",
    "partition",
    "cause",
    "possible_causes",
    "cause_broker_id",
    "election",
    "leader",
    "isr",
    "elr",
    "last_known_elr",
    "expected_elr",
]
theirs[theirs["from_offset"] <= offset][ledger]

# %% [markdown]
# ## How many replicas hold all acknowledged records
# Members of ISR and ELR after each change. With one member left, one crash loses data.

# %%
counts = theirs[theirs["exists"]].copy()
counts["holders"] = counts["isr"].map(len) + counts["elr"].map(len)
counts["partition"] = topic + "-" + counts["partition"].astype(str)
alt.Chart(counts[["from_offset", "holders", "partition"]]).mark_line(interpolate="step-after", point=True).encode(
    x=alt.X("from_offset:Q", title="offset", scale=alt.Scale(zero=False)),
    y=alt.Y("holders:Q", title="ISR + ELR members", axis=alt.Axis(tickMinStep=1)),
    color="partition:N",
).properties(width=700)

# %% [markdown]
# ## Where the recorded ELR differs from the shipped rules

# %%
computed = theirs[theirs["expected_elr"].notna()]
differs = computed[computed["expected_elr"].map(sorted) != computed["elr"].map(sorted)]
Markdown("Nowhere.") if differs.empty else differs[ledger]
