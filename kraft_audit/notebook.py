"""What a notebook starts from: whole clusters as tables, from log dirs or an archive, without Spark or Java."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraft_audit.output import neutral
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    import pandas as pd

    from kraft_audit.commands.timeline_order import ProvenOrder
    from kraft_audit.rules.history import ClusterHistory
    from kraft_audit.rules.model import Finding


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """One cluster below a path: its replayed tables, what the rules found in them, the order that captures prove."""

    history: ClusterHistory
    findings: Sequence[Finding]
    order: ProvenOrder

    @property
    def cluster_id(self) -> str:
        return self.history.cluster_id

    def table(self, name: str) -> pd.DataFrame:
        """`findings`, a table of the silver layer, or `captures`, `batches`, `decode_errors`; columns as documented.

        Times in `_ms` get a UTC timestamp beside them: `timestamp_ms` → `time`, `read_to_ms` → `read_to`. Raises
        KeyError, naming what there is, for any other name.
        """
        import pandas as pd
        import pyarrow as pa

        if name == "findings":
            from kraft_audit.rules.tables import findings_batch

            columns = pa.Table.from_batches([findings_batch(self.findings, seen_ms=self.history.seen_ms)])
        elif self.history.has(name):
            columns = self.history.table(name)
        else:
            raise KeyError(f"no table {name!r}: there are findings, {', '.join(sorted(self.history.tables))}")
        frame = columns.to_pandas(types_mapper={pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}.get)
        for column in [column for column in frame.columns if column.endswith("_ms")]:
            told = column.removesuffix("_ms")
            frame["time" if told == "timestamp" else told] = pd.to_datetime(frame[column], unit="ms", utc=True)
        return frame

    def timeline(self) -> list[dict[str, Any]]:
        """What happened, one event a row, with the state of every node after it."""
        from kraft_audit.commands.timeline import with_nodes
        from kraft_audit.commands.timeline_events import events

        return list(with_nodes(events(self.history, self.order)))


def read_clusters(
    path: str, *, cluster_id: str | None = None, dialect: str = Dialect.KIP853, capture: str | None = None
) -> list[Cluster]:
    """Every cluster below `path`, or the one of that id; judged by all rules at their default thresholds.

    Raises InputError where nothing below `path` can be read, or no cluster there has that id.
    """
    from kraft_audit.commands.histories import ordered_histories
    from kraft_audit.rules import registry
    from kraft_codec.errors import InputError

    found = [
        Cluster(history, list(registry.check(history, {})), order)
        for history, order in ordered_histories(path, dialect=Dialect(dialect), capture=capture)
        if cluster_id in (None, "", history.cluster_id)
    ]
    if not found:
        raise InputError(path, f"no cluster {cluster_id} there")
    return found


def told(value: Any) -> str:
    """A value for Markdown, in which nothing that a log told is markup: no tag, no link, no emphasis.

    Not for code spans, which show the entities that are made here as they are written.
    """
    return "".join(one if one.isalnum() or one == " " else f"&#{ord(one)};" for one in neutral(str(value)))


def show_offline() -> None:
    """Charts become SVG inside the notebook: nothing is fetched when it is looked at. Tables are shown whole.

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
    """A chart whose every text is shown as what it is: the program that draws ends at a control character."""
    if isinstance(part, str):
        return neutral(part)
    if isinstance(part, list):
        return [_neutral(one) for one in part]
    return {key: _neutral(one) for key, one in part.items()} if isinstance(part, dict) else part


def _neutral_lines(text: str) -> str:
    """Text of several lines, escaped for its format already, in which no character acts."""
    return "\n".join(map(neutral, text.split("\n")))
