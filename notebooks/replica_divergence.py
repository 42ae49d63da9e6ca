# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Where the controllers' logs part
# Followers append the leader's bytes verbatim. Where two disks hold different batches at one offset, one of them must be
# truncated, or something worse happened.

# %% tags=["parameters"]
PATH = "samples/divergence.tgz"
CLUSTER = ""

# %%
import altair as alt
import pandas as pd
from IPython.display import Markdown

import kraft_audit
from kraft_audit.text.notebook_output import frame, show_offline, what_happened

show_offline()
(cluster,) = kraft_audit.open(PATH, cluster_id=CLUSTER)
what_happened(cluster)

# %% [markdown]
# ## What each disk holds
# A bar is a leader epoch in the log of one captured disk; a dashed line, an offset at which logs differ.

# %%
held = frame(cluster.held_epochs())
held["disk"] = held["capture"] + " node " + held["node_id"].astype(str)
parted = cluster.diverge()
bars = (
    alt.Chart(held[["disk", "leader_epoch", "from_offset", "to_offset"]])
    .mark_bar()
    .encode(
        x=alt.X("from_offset:Q", title="offset"),
        x2="to_offset:Q",
        y=alt.Y("disk:N", title=None),
        color=alt.Color("leader_epoch:O", title="leader epoch"),
    )
)
lines = alt.Chart(pd.DataFrame({"offset": [each.offset for each in parted]}, dtype="int64"))
(bars + lines.mark_rule(strokeDash=[4, 3]).encode(x="offset:Q")).properties(width=700)

# %% [markdown]
# ## Where logs differ
# The branches from the first offset at which they differ, and the disks that held each.

# %%
branches = [
    {
        "offset": branch.offset,
        "epoch": branch.epoch,
        "to_offset": branch.to_offset,
        "canonical": branch.is_canonical,
        "held_by": ", ".join(f"{holder.capture} node {holder.node_id}" for holder in branch.holders),
    }
    for each in parted
    for branch in each.branches
]
pd.DataFrame(branches) if branches else Markdown("All disks hold the same bytes wherever they overlap.")

# %% [markdown]
# ## How far the log is committed

# %%
watermarks = frame(cluster.table("watermarks"))
watermarks[
    [
        "capture",
        "read_from",
        "read_to",
        "low",
        "high",
        "canonical_epoch",
        "canonical_end_offset",
        "captured_voters",
        "undecided",
    ]
]

# %% [markdown]
# ## Damage on the disks

# %%
errors = frame(cluster.table("decode_errors"))
Markdown("None.") if errors.empty else errors[["node_id", "file_name", "position", "reason", "detail"]]
