"""What the commands about clusters below a PATH share: the loop over the clusters, the output, what is not read."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kraft_audit.commands.arguments import (
    LAKE_PACKAGES,
    ConfiguredLogs,
    JudgedLogs,
    Logs,
    LogsOrLake,
    NodeLogs,
    configurations_of,
    identities,
    need_packages,
    node_ids_of,
)
from kraft_audit.commands.branch_option import on_branch
from kraft_audit.commands.ending import UsageError, complain, remark
from kraft_audit.text.exit_codes import EXIT_UNREADABLE
from kraft_audit.text.output import Format, Output, OutputRow, ShownColumn
from kraft_audit.text.watched_work import doing, ended, expect
from kraft_codec.errors import InputError, Reason
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.clusters import Clusters
    from kraft_audit.opened_cluster import NoCanonicalLogError
    from kraft_audit.replay.cluster_state import BranchName, Moment

_Cluster = TypeVar("_Cluster")
READ_ATTEMPTS: Final = 3
READ_AGAIN_AFTER_S: Final = 0.5
IS_A_LAKE: Final = (
    "a lake, not log dirs: `kraft-audit lake export {lake} --out DIR` writes its log into DIR, which this command "
    "reads; `kraft-audit report {lake} --out DIR` and `kraft-audit lake tables {lake}` show its findings"
)


class Results:
    """What a command says of the clusters below PATH: for people cluster by cluster, for programs all together.

        results = Results(output, KEYS)
        for cluster in results.each_cluster(logs):
            results.title(cluster)
            results.rows(rows, COLUMNS)
        return results.end()

    `keys` are the columns of CSV, in their order. `exit_code` is 3 where a cluster has no log to show.
    """

    def __init__(self, output: Format, keys: Iterable[str] = (), *, is_spaced: bool = True) -> None:
        self.out = Output(output)
        self.is_table = self.out.format is Format.TABLE
        self._keys = tuple(keys)
        self._rows: list[OutputRow] = []
        self.is_spaced = is_spaced
        self.exit_code = 0
        self.cluster_count = 0

    def each_cluster(self, logs: Logs, branch: BranchName | None = None) -> Iterator[Cluster]:
        """Every cluster below PATH, of a branch those that have it. Raises UsageError, InputError."""
        with open_logs(logs) as clusters:
            self.cluster_count = len(clusters)
            for number, cluster in enumerate(counted(on_branch(clusters, branch, logs.capture))):
                self._space(number)
                yield cluster

    def each_history(
        self, logs: Logs, *, keeps_records: bool = False, branch: BranchName | None = None
    ) -> Iterator[Cluster]:
        """Every cluster below PATH with its history read; stderr names those of whose log nothing could be read.

        A cluster whose files change while they are read is read again. With `keeps_records` the records behind the
        history can be asked for. Raises UsageError, InputError.
        """
        for planned in self.each_cluster(logs, branch):
            cluster = planned
            if branch is None:
                cluster = _read_at_one_moment(logs, planned, keeps_records=keeps_records)
            if not cluster.history.is_read:  # that no finding is there says nothing
                from kraft_audit.rules.judging import NOTHING_READ

                complain(f"{logs.path}: cluster {cluster.title}: {NOTHING_READ}")
            yield cluster

    def each_moment(
        self, logs: Logs, tables: frozenset[str], branch: BranchName | None = None
    ) -> Iterator[tuple[Cluster, Moment]]:
        """Every cluster that has a log or snapshot to show, at the newest capture or the one that --capture names.

        A cluster without one does not stop the others: after them it is named on stderr, and the exit code says so.
        Raises InputError where no cluster has one.
        """
        from kraft_audit.opened_cluster import NoCanonicalLogError

        without_log: list[NoCanonicalLogError] = []
        number = 0
        with open_logs(replace(logs, capture=None)) as clusters:
            for cluster in counted(clusters.with_capture(logs.capture)):
                try:
                    moment = cluster.moment(logs.capture, tables=tables, branch=branch)
                except NoCanonicalLogError as problem:
                    without_log.append(problem)
                    continue
                self._space(number)
                number += 1
                yield cluster, moment
        if without_log and not number:
            raise without_log[0]
        for passed_over in without_log:
            complain(str(passed_over))
            self.exit_code = EXIT_UNREADABLE

    def _space(self, number: int) -> None:
        if number and self.is_table and self.is_spaced:
            self.out.line("")

    def title(self, cluster: Cluster, more: str = "") -> None:
        """For people: the heading of a cluster."""
        if self.is_table:
            self.out.title(f"{cluster.title}{f'   {more}' if more else ''}")

    def text(self, text: str, hanging: int | None = None) -> None:
        """For people: a line of text, as `Output.text` prints it."""
        if self.is_table:
            self.out.text(text, hanging)

    def missing(self, gaps: Sequence[tuple[int, int]]) -> None:
        """For people: which records are missing in what is shown, if any are."""
        if self.is_table and gaps:
            from kraft_audit.replay.cluster_state import missing_text

            self.out.text(missing_text(gaps))

    def rows(
        self, rows: Sequence[OutputRow], columns: Sequence[ShownColumn], shown: Callable[[Any], OutputRow] | None = None
    ) -> bool:
        """Rows for both: for people as a table, each as `shown` makes it readable. Whether there are any."""
        if self.is_table:
            self.out.rows(rows if shown is None else map(shown, rows), columns)
        self.add(rows)
        return bool(rows)

    def add(self, rows: Iterable[OutputRow]) -> None:
        """Rows for programs."""
        if not self.is_table:
            self._rows.extend(rows)

    def end(self) -> int:
        """Prints the rows for programs; the exit code as far as the clusters decide it."""
        if not self.is_table:
            self.out.rows(self._rows, [], self._keys)
        return self.exit_code

    def end_documents(self, documents: Sequence[Any]) -> int:
        """As `end`, with a JSON object for each cluster instead of rows: of one cluster the object, else a list."""
        if self.out.format is not Format.JSON:
            return self.end()
        self.out.document(documents[0] if len(documents) == 1 else documents)
        return self.exit_code


def undecided_row(keys: Iterable[str], cluster_id: str, reason: str) -> dict[str, Any]:
    """A row for a cluster that could not be read: without a row, it would look like a cluster without problems."""
    return {**dict.fromkeys(keys), "cluster_id": cluster_id, "undecided": reason}


def _read_at_one_moment(logs: Logs, cluster: Cluster, *, keeps_records: bool) -> Cluster:
    """A cluster with its history read, again where a file was cut, rewritten or deleted meanwhile: a live node does so.

    After READ_ATTEMPTS it is taken as it is: `check` names node and file.
    """
    for attempt in range(READ_ATTEMPTS):
        cluster.keeps_judged_records = keeps_records
        reasons = cluster.history.chunked_table("decode_errors")["reason"].unique().to_pylist()
        if Reason.CHANGED_DURING_READ not in reasons or attempt + 1 == READ_ATTEMPTS:
            break
        time.sleep(READ_AGAIN_AFTER_S)
        again = _open(replace(logs, cluster=cluster.cluster_id))
        cluster = next((each for each in again if each.title == cluster.title), cluster)
    return cluster


def counted(clusters: Iterable[_Cluster]) -> Iterator[_Cluster]:
    """The clusters one by one; on a terminal, how many are done."""
    for cluster in clusters:
        yield cluster
        ended(1)


def open_logs(
    logs: Logs, *, node_ids: Sequence[int] = (), file: str | None = None, dialect: Dialect | None = None
) -> Clusters:
    """What lies below PATH, as the options say; places there that could not be read are named on stderr.

    Raises UsageError, InputError.
    """
    clusters = _open(logs, node_ids=node_ids, file=file, dialect=dialect)
    expect(len(clusters), clusters.size_bytes)
    return clusters


def _open(
    logs: Logs, *, node_ids: Sequence[int] = (), file: str | None = None, dialect: Dialect | None = None
) -> Clusters:
    import kraft_audit

    lake = logs.lake if isinstance(logs, LogsOrLake) else None
    if lake is not None:
        need_packages("--lake", LAKE_PACKAGES, "lake")
    if isinstance(logs, LogsOrLake) and looks_like_a_lake(logs.path):
        return _open_lake(logs)
    judged = logs if isinstance(logs, JudgedLogs) else None
    doing(f"opening {logs.path}")
    try:
        clusters = kraft_audit.open(
            logs.path,
            cluster_id=logs.cluster,
            capture=logs.capture,
            dialect=dialect,
            defaults=static_defaults(logs.default) if isinstance(logs, ConfiguredLogs) else {},
            node_ids=node_ids,
            file=file,
            is_running=judged is not None and judged.running,
            gone=() if judged is None else node_ids_of("--gone", judged.gone),
            lake=lake,
            named=identities(logs.named),
            configurations=configurations_of(logs.config) if isinstance(logs, NodeLogs) else {},
        )
    except InputError as problem:
        if problem.path == logs.path and looks_like_a_lake(logs.path):
            raise InputError(logs.path, IS_A_LAKE.format(lake=shlex.quote(logs.path))) from None
        if problem.path == logs.path and isinstance(logs, LogsOrLake) and _is_lake_in_a_store(logs.path):
            return _open_lake(logs)
        raise
    for line in clusters.unread:
        complain(line)
    return clusters


def _open_lake(logs: LogsOrLake) -> Clusters:
    """The one cluster that --cluster names, or that the lake has. Raises UsageError, InputError."""
    import kraft_audit

    need_packages("a lake", LAKE_PACKAGES, "lake")
    if logs.lake is not None:
        raise UsageError(f"--lake: PATH {logs.path} is a lake already: leave out --lake")
    return kraft_audit.open_lake(logs.path, cluster=logs.cluster, defaults=static_defaults(logs.default))


def _is_lake_in_a_store(path: str) -> bool:
    from kraft_audit.lake.lake_paths import is_uri

    if not is_uri(path) or find_spec("deltalake") is None:
        return False
    from kraft_audit.lake.staging.archive_reading import lake_at
    from kraft_audit.tables.bronze import PLANS

    return lake_at(path).exists(PLANS.name)


def looks_like_a_lake(path: str) -> bool:
    """Whether a local folder has the ledger of a lake."""
    from kraft_audit.lake.lake_paths import is_lake_folder
    from kraft_codec.storage.opener import file_path

    return is_lake_folder(file_path(path) or path)


def static_defaults(texts: Sequence[str] | None) -> dict[str, str]:
    """The NAME=VALUE texts of --default by name. Raises UsageError."""
    if not texts:
        return {}
    from kraft_audit.clusters import check_defaults

    defaults: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--default: {text!r}: expected NAME=VALUE")
        try:
            check_defaults({name: value})
        except ValueError as problem:
            raise UsageError(f"--default: {problem}") from None
        defaults[name] = value
    return defaults


def remark_on_key() -> None:
    """Says on a terminal that fingerprints are under a key of this run, for commands that show values."""
    from kraft_audit.lake.redaction_key import KEY_VARIABLE

    if not os.environ.get(KEY_VARIABLE) and sys.stderr.isatty():
        remark(f"fingerprints of secrets differ from run to run, unless {KEY_VARIABLE} names a key file")
