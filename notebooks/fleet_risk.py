# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Which clusters need attention now
# Every cluster below a path, by its worst open finding, and the time its partitions were one crash from loss.

# %% tags=["parameters"]
PATH = "samples"  # a folder of captures of any number of clusters

# %%
import altair as alt
import pandas as pd
from IPython.display import Markdown

import kraft_audit
from kraft_audit.text.notebook_output import frame, show_offline

show_offline()
SEVERITIES = ["critical", "high", "medium", "low"]
clusters = list(kraft_audit.open(PATH))
findings = pd.concat([frame(cluster.table("findings")) for cluster in clusters], ignore_index=True)
raised = findings[findings["status"] == "raised"]
still = raised[~raised["is_over"]]
Markdown(f"{len(clusters)} clusters, {len(still)} open findings, {len(raised) - len(still)} that are over.")

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
table

# %% [markdown]
# ## One crash from loss
# Rule KP001: the minutes during which one replica alone held all acknowledged records of a partition.

# %%
exposed = raised[(raised["rule"] == "KP001") & raised["from_ms"].notna()].copy()
end_ms = {cluster.cluster_id: cluster.history.end_ms for cluster in clusters}
exposed["until_ms"] = exposed["to_ms"].fillna(exposed["cluster_id"].map(end_ms))
exposed["minutes"] = (exposed["until_ms"] - exposed["from_ms"]) / 60_000
Markdown("No partition was.") if exposed.empty else exposed.sort_values("minutes", ascending=False)[
    ["cluster_id", "subject", "from", "minutes", "is_over", "what_to_do"]
].head(50).reset_index(drop=True)

# %% [markdown]
# ## The worst, first

# %%
order = still["severity"].map(SEVERITIES.index)
still.assign(order=order).sort_values(["order", "rule"])[
    ["severity", "rule", "name", "cluster_id", "subject", "summary", "what_to_do"]
].head(30).reset_index(drop=True)
