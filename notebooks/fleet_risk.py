# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Which clusters need attention now
# Every cluster below a path, by its worst open finding, and the time its partitions were one crash from loss. What lasts
# only because a whole cluster was stopped in order does not count, here and on the pages.

# %% tags=["parameters"]
PATH = "samples"  # a folder of captures of any number of clusters

# %%
import altair as alt
import pandas as pd
from IPython.display import Markdown

import kraft_audit
from kraft_audit.text.notebook_output import WORST_FIRST, by_rule, findings_of, show_offline

show_offline()
SEVERITIES = list(WORST_FIRST)
clusters = list(kraft_audit.open(PATH))
findings = pd.concat([findings_of(cluster) for cluster in clusters], ignore_index=True)
still = findings[findings["state"] == "open"]
urgent = still[still["severity"].isin(["critical", "high"])]
states = findings["state"].value_counts()
Markdown(
    f"**{urgent['cluster_id'].nunique()} of {len(clusters)} clusters** have an open finding of severity critical or high. "
    f"{len(still)} findings are open, {states.get('undecided', 0)} are undecided, {states.get('resolved', 0)} are resolved."
)

# %% [markdown]
# ## Open findings by cluster

# %%
counts = still.groupby(["cluster_id", "severity"]).size().reset_index(name="findings")
alt.Chart(counts).mark_bar().encode(
    x=alt.X("findings:Q", axis=alt.Axis(tickMinStep=1)),
    y=alt.Y("cluster_id:N", sort="-x", title=None),
    color=alt.Color(
        "severity:N",
        sort=SEVERITIES,
        scale=alt.Scale(domain=SEVERITIES, range=["#67000d", "#d62728", "#ff9f1c", "#9ecae1"]),
    ),
).properties(width=600)

# %%
table = still.pivot_table(index="cluster_id", columns="severity", values="rule", aggfunc="count", fill_value=0)
table = table.reindex(columns=SEVERITIES, fill_value=0).sort_values(SEVERITIES, ascending=False)
table.rename_axis(index="cluster")

# %% [markdown]
# ## One crash from loss
# Rule KP001: the minutes during which one replica alone held all acknowledged records of a partition.

# %%
raised = findings[findings["status"] == "raised"]
exposed = raised[(raised["rule"] == "KP001") & raised["from_ms"].notna()].copy()
end_ms = {cluster.cluster_id: cluster.history.end_ms for cluster in clusters}
exposed["until_ms"] = exposed["to_ms"].fillna(exposed["cluster_id"].map(end_ms))
exposed["minutes"] = (exposed["until_ms"] - exposed["from_ms"]) / 60_000
exposed["now"] = (exposed["state"] == "open").astype(int)
by_cluster = exposed.groupby("cluster_id").agg(
    partitions=("subject", "nunique"),
    partitions_now=("now", "sum"),
    partition_minutes=("minutes", "sum"),
    longest_minutes=("minutes", "max"),
    first=("from", "min"),
)
Markdown("No partition was.") if exposed.empty else by_cluster.sort_values(
    "partition_minutes", ascending=False
).rename_axis(index="cluster")

# %% [markdown]
# ## The worst, first

# %%
by_rule(still).drop(columns="state").head(30)
