"""What notebooks show: tables as people read them, Markdown and charts, in which no text of a log acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_audit.text.output import neutral

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kraft_audit.cluster import Cluster

HEADING_WORDS: Final = {"id": "ID", "isr": "ISR", "elr": "ELR"}
"""Words of column names that people write otherwise."""
WORST_FIRST: Final = ("critical", "high", "medium", "low")
ROWS_MAX: Final = 500


def frame(table: pa.Table) -> pd.DataFrame:
    """A table for pandas; times in `_ms` get a UTC timestamp beside them: `timestamp_ms` as `time`, `x_ms` as `x`."""
    import pandas as pd
    import pyarrow as pa

    data_frame = table.to_pandas(types_mapper={pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}.get)
    for column in [column for column in data_frame.columns if column.endswith("_ms")]:
        name = column.removesuffix("_ms")
        data_frame["time" if name == "timestamp" else name] = pd.to_datetime(data_frame[column], unit="ms", utc=True)
    return data_frame


def findings_of(cluster: Cluster) -> pd.DataFrame:
    """What the rules found, each finding with its `state` as the pages count it.

    Args:
        cluster: One cluster of `kraft_audit.open`.

    Returns:
        The table `findings` without rules that found nothing.
    """
    findings = frame(cluster.table("findings"))
    return findings[findings["status"] != "clear"].copy()


def by_rule(findings: pd.DataFrame) -> pd.DataFrame:
    """One row for the findings of one rule in one cluster and state: open ones first, of these the worst first."""
    rank = findings["severity"].map(WORST_FIRST.index)
    ordered = findings.assign(is_over=findings["state"] == "resolved", rank=rank).sort_values(
        ["is_over", "rank", "from_ms"]
    )
    groups = ordered.groupby(["state", "severity", "cluster_id", "rule", "name"], sort=False)
    rows = groups.agg(
        findings=("subject", "size"),
        since=("from", "min"),
        first_of_them=("summary", "first"),
        what_to_do=("what_to_do", "first"),
    )
    return rows.reset_index().rename(columns={"cluster_id": "cluster"})


def for_people(data_frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with headings and values as people read them; a named index becomes the first column.

    `from_offset` becomes "From offset", a time loses its zone and gets "(UTC)" in its heading, a list becomes
    `11, 12, 13`, truth becomes yes or no, and an absent value is empty.
    """
    import pandas as pd

    if data_frame.index.name is not None:
        data_frame = data_frame.reset_index()
    columns = {}
    for name in data_frame.columns:
        values, heading = data_frame[name], heading_of(str(name))
        if isinstance(values.dtype, pd.DatetimeTZDtype):
            heading, values = f"{heading} (UTC)", values.dt.strftime("%Y-%m-%d %H:%M:%S.%f").str[:-3]
        elif not pd.api.types.is_float_dtype(values):
            values = values.astype(object).map(_cell)
        columns[heading] = values
    return pd.DataFrame(columns)


def heading_of(column: str) -> str:
    """`from_offset` as "From offset", `elr` as "ELR"."""
    words = " ".join(HEADING_WORDS.get(word, word) for word in column.split("_"))
    return words[:1].upper() + words[1:]


def _cell(value: Any) -> Any:
    import pandas as pd

    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, str) and hasattr(value, "__iter__"):
        return ", ".join(map(str, value))
    return "" if pd.isna(value) else value


def markdown_text(value: Any) -> str:
    """A value for Markdown in which nothing is markup: no tag, no link, no emphasis.

    Not for code spans, which show the entities as they are written here.
    """
    text = neutral(str(value))
    return "".join(letter if letter.isalnum() or letter == " " else f"&#{ord(letter)};" for letter in text)


def what_happened(cluster: Cluster) -> Any:
    """The incident picture of a cluster, or one sentence where its log has no times to draw by."""
    from IPython import display

    drawn = cluster.picture()
    if drawn is None:
        return display.Markdown("Nothing in this log has a time, so nothing is drawn.")  # type: ignore[no-untyped-call]
    return display.SVG(drawn)  # type: ignore[no-untyped-call]


def show_offline() -> None:
    """Charts become SVG inside the notebook: nothing is fetched when it is opened. Tables are shown whole.

    Control characters and bidirectional marks are shown as what they are, in tables and charts.
    """
    import altair
    import pandas as pd
    from IPython import get_ipython

    altair.renderers.enable("svg")
    drawn = altair.renderers.get()
    altair.renderers.register("neutral-svg", lambda chart, **options: drawn(_neutral(chart), **options))
    altair.renderers.enable("neutral-svg")
    altair.data_transformers.disable_max_rows()
    pd.options.display.max_colwidth = 160
    pd.options.display.html.use_mathjax = False
    if (shell := get_ipython()) is not None:
        formatters = shell.display_formatter.formatters
        formatters["text/html"].for_type(pd.DataFrame, _html)
        formatters["text/plain"].for_type(pd.DataFrame, lambda shown, printer, _: printer.text(_plain(shown)))


def _html(shown: pd.DataFrame) -> str:
    rows = for_people(shown)
    table = rows.to_html(index=False, max_rows=ROWS_MAX, na_rep="", float_format="{:.1f}".format, border=0)
    return _neutral_lines(f"<div>{table}</div>")


def _plain(shown: pd.DataFrame) -> str:
    rows = for_people(shown)
    return _neutral_lines(
        rows.to_string(index=False, max_rows=ROWS_MAX, na_rep="", float_format="{:.1f}".format)
        if len(rows)
        else "No rows."
    )


def _neutral(part: Any) -> Any:
    """A chart in which every text is neutral: the program that draws stops at a control character."""
    if isinstance(part, str):
        return neutral(part)
    if isinstance(part, list):
        return [_neutral(item) for item in part]
    return {key: _neutral(value) for key, value in part.items()} if isinstance(part, dict) else part


def _neutral_lines(text: str) -> str:
    """Text of several lines, escaped for its format already, in which no character acts."""
    return "\n".join(map(neutral, text.split("\n")))
