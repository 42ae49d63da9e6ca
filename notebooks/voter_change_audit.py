# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Who was a voter, and was each change safe
# Every voter set of a cluster, committed or reverted, judged twice: by Kafka's own rule (one voter at a time) and by proof
# (do all majorities of the old and the new set meet?).

# %% tags=["parameters"]
PATH = "samples/uncommitted-voter-change.tgz"
CLUSTER = ""

# %%
import altair as alt
import pandas as pd
from IPython.display import Markdown

import kraft_audit
from kraft_audit.text.notebook_output import findings_of, frame, markdown_text, show_offline, what_happened

show_offline()
(cluster,) = kraft_audit.open(PATH, cluster_id=CLUSTER)
what_happened(cluster)

# %% [markdown]
# ## The history

# %%


def names(voters) -> str:
    return ", ".join(f"{voter['voter_id']}" for voter in voters) or "none"


sets = frame(cluster.table("voter_sets")).sort_values(["from_offset", "from_epoch"])
for column in ("voters", "added", "removed"):
    sets[column] = sets[column].map(names)
sets[
    [
        "from_offset",
        "from_epoch",
        "time",
        "source",
        "kraft_version",
        "voters",
        "added",
        "removed",
        "canonical",
        "ended_by",
    ]
]

# %% [markdown]
# ## Leader epochs
# How each epoch began and ended. An epoch without a leader has none that any captured disk recorded.

# %%
epochs = frame(cluster.table("leader_epochs")).sort_values("epoch")
epochs[["epoch", "leader_id", "from_offset", "to_offset", "time", "voters", "granting_voters", "canonical", "ended_by"]]

# %%
known = epochs.dropna(subset=["from_offset", "to_offset"]).copy()
known["leader"] = known["leader_id"].map(lambda node: "unknown" if pd.isna(node) else f"node {int(node)}")
known["branch"] = known["canonical"].map({True: "canonical", False: "not canonical"})
alt.Chart(known[["epoch", "leader", "branch", "from_offset", "to_offset"]]).mark_bar().encode(
    x=alt.X("from_offset:Q", title="offset"),
    x2="to_offset:Q",
    y=alt.Y("epoch:O", title="leader epoch"),
    color="leader:N",
    opacity=alt.Opacity("branch:N", scale=alt.Scale(domain=["canonical", "not canonical"], range=[1.0, 0.35])),
).properties(width=700, title="Which offsets each epoch wrote")

# %% [markdown]
# ## What is proven committed

# %%
watermarks = frame(cluster.table("watermarks"))
newest = watermarks.iloc[-1]
lines = [f"* low {newest.low}: {markdown_text(fact)}" for fact in newest.low_evidence]
lines += [f"* high {newest.high}: {markdown_text(fact)}" for fact in newest.high_evidence]
Markdown("\n".join(lines) or "Nothing is proven.")

# %% [markdown]
# ## What the rules find now

# %%
findings = findings_of(cluster)
findings = findings[findings["scope"].isin(["voters", "log"])].rename(columns={"from": "since", "to": "until"})
columns = ["severity", "rule", "name", "subject", "summary", "reason", "since", "until", "what_to_do"]
now = findings[findings["state"] != "resolved"][["state", *columns]]
Markdown("Nothing now.") if now.empty else now

# %% [markdown]
# ## What they found before
# Changes that were reverted or completed, and what else is over.

# %%
over = findings[findings["state"] == "resolved"][["severity", "rule", "name", "subject", "summary", "since"]]
Markdown("Nothing.") if over.empty else over
