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
from IPython.display import Markdown

import kraft_audit
from kraft_audit.text.notebook_output import frame, show_offline

show_offline()
(cluster,) = kraft_audit.open(PATH, cluster_id=CLUSTER)
batches = frame(cluster.table("batches"))
batches = batches[(batches["source"] == "log") & (batches["status"] != "truncated")]

# %% [markdown]
# ## Who holds what
# One row for each batch (base offset, leader epoch, CRC), with the nodes that hold it.

# %%
key = ["base_offset", "last_offset", "leader_epoch", "crc"]
held = (
    batches.groupby(key)["node_id"].agg(lambda nodes: sorted({int(node) for node in nodes})).reset_index(name="held_by")
)
rivals = held[held.duplicated("base_offset", keep=False)]
Markdown("All replicas hold the same bytes wherever they overlap.") if rivals.empty else rivals.reset_index(drop=True)

# %% [markdown]
# ## The logs side by side

# %%
ends = (
    batches.groupby(["capture", "node_id", "leader_epoch"])
    .agg(from_offset=("base_offset", "min"), to_offset=("last_offset", "max"))
    .reset_index()
)
ends["to_offset"] += 1
ends["node"] = ends["capture"] + " node " + ends["node_id"].astype(int).astype(str)
alt.Chart(ends[["node", "leader_epoch", "from_offset", "to_offset"]]).mark_bar().encode(
    x=alt.X("from_offset:Q", title="offset"),
    x2="to_offset:Q",
    y=alt.Y("node:N", title=None),
    color=alt.Color("leader_epoch:O", title="leader epoch"),
).properties(width=700)

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
