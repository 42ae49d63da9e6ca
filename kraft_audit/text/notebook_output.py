"""What notebooks show: data frames with times, Markdown and charts in which no text of a log acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_audit.text.output import neutral

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kraft_audit.cluster import Cluster


def frame(table: pa.Table) -> pd.DataFrame:
    """A table for pandas; times in `_ms` get a UTC timestamp beside them: `timestamp_ms` as `time`, `x_ms` as `x`."""
    import pandas as pd
    import pyarrow as pa

    data_frame = table.to_pandas(types_mapper={pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}.get)
    for column in [column for column in data_frame.columns if column.endswith("_ms")]:
        name = column.removesuffix("_ms")
        data_frame["time" if name == "timestamp" else name] = pd.to_datetime(data_frame[column], unit="ms", utc=True)
    return data_frame


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
    pd.options.display.max_rows = 500
    pd.options.display.max_colwidth = 160
    pd.options.display.html.use_mathjax = False
    if (shell := get_ipython()) is not None:
        formatters = shell.display_formatter.formatters
        formatters["text/html"].for_type(pd.DataFrame, lambda frame: _neutral_lines(frame._repr_html_()))
        formatters["text/plain"].for_type(
            pd.DataFrame, lambda frame, printer, _: printer.text(_neutral_lines(repr(frame)))
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
