# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What happened
# One cluster between two moments: every event in the order of the log, who led, which brokers were fenced, which
# partitions were blocked, and what the rules find.

# %% tags=["parameters"]
PATH = "samples/elr-06-kill-13-last-replica.tgz"  # log dirs or an archive
CLUSTER = ""  # a cluster id; empty: the only one
FROM = ""  # a UTC time as 2026-11-21T01:33:00; empty: the beginning
TO = ""  # the end (exclusive); empty: the last record

# %%
import altair as alt
import pandas as pd
from IPython.display import Markdown

import kraft_audit
from kraft_audit.text.notebook_output import by_rule, findings_of, frame, markdown_text, show_offline, what_happened

show_offline()
(cluster,) = kraft_audit.open(PATH, cluster_id=CLUSTER)
what_happened(cluster)

# %%
start = pd.Timestamp(FROM, tz="UTC") if FROM else pd.Timestamp.min.tz_localize("UTC")
end = pd.Timestamp(TO, tz="UTC") if TO else pd.Timestamp.max.tz_localize("UTC")


def within(frame: pd.DataFrame, column: str = "time") -> pd.DataFrame:
    return frame[frame[column].between(start, end, inclusive="left")]


interval = frame(cluster.table("watermarks")).iloc[-1]
Markdown(
    f"Cluster **{markdown_text(cluster.cluster_id)}**, captured until {interval.read_to:%Y-%m-%d %H:%M:%S} UTC, committed to at least "
    f"offset {interval.low}; the log that was captured ends at {interval.canonical_end_offset}."
)

# %% [markdown]
# ## Incidents
# As `check` prints them and the pages show them.

# %%
incidents = pd.DataFrame(
    {
        "incident": each.headline,
        "state": f"open, {each.severity}" if each.state == "open" else each.state,
        "since": pd.to_datetime(each.from_ms, unit="ms", utc=True),
        "until": pd.to_datetime(each.to_ms, unit="ms", utc=True),
        "effects": "; ".join(each.effects),
    }
    for each in cluster.incidents().incidents
)
Markdown("None.") if incidents.empty else incidents

# %% [markdown]
# ## Every event

# %%
timeline = pd.DataFrame(cluster.timeline())
timeline["time"] = pd.to_datetime(timeline["timestamp_ms"], unit="ms", utc=True)
within(timeline)[["offset", "epoch", "time", "event", "text"]]

# %% [markdown]
# ## Partitions, through time
# A bar is a state of one partition. *Can advance*: it has a leader and enough in-sync replicas for its high watermark to
# move. *Stands still*: it does not.

# %%
changes = frame(cluster.table("partition_changes")).sort_values(["topic_id", "partition", "from_offset"])
last_time = pd.to_datetime(cluster.history.end_ms, unit="ms", utc=True)
changes["until"] = changes.groupby(["topic_id", "partition"])["time"].shift(-1).fillna(last_time)
changes["name"] = changes["topic"] + "-" + changes["partition"].astype(str)
changes["state"] = changes["high_watermark_can_advance"].map({True: "can advance", False: "stands still"})
bars = changes[changes["exists"] & (changes["until"] > start) & (changes["time"] < end)]
troubled = bars.loc[bars["state"] == "stands still", "name"].unique()[:40]
bars = bars[bars["name"].isin(troubled)]
Markdown("No partition stood still.") if bars.empty else alt.Chart(
    bars[["name", "state", "time", "until", "cause"]]
).mark_bar().encode(
    x=alt.X("time:T", title="time (UTC)"),
    x2="until:T",
    y=alt.Y("name:N", title=None),
    color=alt.Color("state:N", scale=alt.Scale(domain=["can advance", "stands still"], range=["#9ecae1", "#d62728"])),
).properties(width=700, title="Partitions that stood still")

# %% [markdown]
# ## What the rules find

# %%
findings = findings_of(cluster)
raised = findings[findings["status"] == "raised"]
raised = raised[raised["from_ms"].isna() | raised["from"].between(start, end, inclusive="left")]
by_rule(raised).drop(columns="cluster")
