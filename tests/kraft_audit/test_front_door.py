"""`import kraft_audit`: its examples run, it is light, and it gives what the commands print."""

from __future__ import annotations

import dataclasses
import doctest
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kraft_audit
from kraft_audit import cluster as cluster_module
from kraft_audit import described_cluster
from kraft_audit.commands.cli import run_command
from kraft_audit.pipeline import history_collector
from kraft_audit.quorum.rounds import proven_rounds
from kraft_codec.errors import ChoiceError, InputError
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.storage import opener
from tests.builders.captures import SMALL_CORPUS

ELR = "samples/elr-06-kill-13-last-replica.tgz"
DIVERGENCE = f"{SMALL_CORPUS}/divergence"
WITHOUT_EXAMPLE = {
    *("rescue", "salvage"),  # which write a folder
    "on_branch",  # of logs that contradict each other
    *("lost_logs", "old_logs", "partition_batches"),  # of which commands ask pieces
}


@pytest.fixture(autouse=True)
def in_the_project(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project_root)
    monkeypatch.delenv("KRAFT_AUDIT_REDACTION_KEY_FILE", raising=False)


@pytest.fixture(scope="module")
def cluster(project_root: Path) -> kraft_audit.Cluster:
    (found,) = kraft_audit.open(project_root / ELR)
    return found


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    capsys.readouterr()
    run_command([*arguments, "--output", "json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("module", [kraft_audit, cluster_module, described_cluster])
def test_every_example_is_true(module: ModuleType, cluster: kraft_audit.Cluster) -> None:
    result = doctest.testmod(module, extraglobs={"cluster": cluster}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_question_has_an_example() -> None:
    named = vars(described_cluster.DescribedCluster) | vars(kraft_audit.Cluster)
    methods = {name: method for name, method in named.items() if isinstance(method, FunctionType)}
    without = {name for name, method in methods.items() if name[0] != "_" and ">>> " not in (method.__doc__ or "")}
    assert without == WITHOUT_EXAMPLE


def test_the_import_is_light() -> None:
    script = (
        "import sys, kraft_audit\n"
        "heavy = {'pyarrow', 'numba', 'numpy', 'pyspark', 'yaml', 'deltalake', 'pandas', 'typer', 'pydantic'}\n"
        "sys.stderr.write(','.join(sorted(heavy & set(sys.modules))))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_no_answer_needs_spark() -> None:
    script = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pyspark', 'delta', 'deltalake', 'pandas', 'typer'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import kraft_audit\n"
        f"for cluster in kraft_audit.open({DIVERGENCE!r}):\n"
        "    cluster.findings(), cluster.timeline(), cluster.state(), cluster.voters(), cluster.partitions()\n"
        "    cluster.quorum(), cluster.diverge(), cluster.whatif([1]), cluster.recover_plan(), cluster.records()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_batches_have_a_row_for_each_disk_that_holds_them(project_root: Path) -> None:
    """The rules read what disks hold alike once; the table of that name is the one of the lake."""
    for cluster in kraft_audit.open(DIVERGENCE):
        held = {
            (log.parent.parent.name, batch.header.base_offset, batch.header.crc)
            for log in (project_root / cluster.root).rglob("*.log")
            for batch in read_batches(log.read_bytes())
            if isinstance(batch, Batch)
        }
        table = cluster.table("batches")
        in_logs = table.filter(pc.equal(table["source"], "log")).to_pylist()
        assert {(f"node-{row['node_id']}", row["base_offset"], row["crc"]) for row in in_logs} == held
        assert cluster.history.table("batches").num_rows < table.num_rows
        with pytest.raises(KeyError, match="no table 'batch_copies': there are findings, "):
            cluster.table("batch_copies")


def test_a_capture_that_is_not_there_is_named_with_those_that_are(cluster: kraft_audit.Cluster) -> None:
    for ask in (cluster.quorum, cluster.state, cluster.partitions):
        with pytest.raises(ChoiceError, match=r"no capture 'typo' of cluster .*: there "):
            ask(capture="typo")


@pytest.mark.slow
def test_commands_print_what_it_gives(cluster: kraft_audit.Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert json_of(capsys, "quorum", "--voters", ELR) == cluster.voters().to_pylist()
    assert json_of(capsys, "partitions", ELR) == cluster.partitions().to_pylist()
    events = [{"cluster_id": cluster.cluster_id, **dataclasses.asdict(event)} for event in cluster.timeline()]
    assert json_of(capsys, "timeline", ELR) == events
    quorum = json_of(capsys, "quorum", ELR)
    assert isinstance(quorum, dict)
    described = dataclasses.asdict(cluster.quorum())
    for name in ("leader_id", "leader_epoch", "committed_low", "committed_high"):
        assert quorum[name] == described[name]
    assert list(quorum) == [*described, "may_i", "may_i_skipped", "cannot_be_lost"]


def test_findings_are_a_table_of_the_check(cluster: kraft_audit.Cluster) -> None:
    findings, rows = cluster.check(), cluster.findings().to_pylist()
    assert [(row["rule"], row["subject"]) for row in rows] == [(each.rule, each.subject) for each in findings]
    only = cluster.check(only=["KP001"])
    assert only == [each for each in findings if each.rule == "KP001"]


def test_a_state_is_as_after_its_place(cluster: kraft_audit.Cluster) -> None:
    assert cluster.state(at=100).offset == 100
    assert cluster.state(at="100").rows("topic_changes") == cluster.state(at=100).rows("topic_changes")
    end = cluster.state()
    assert end.offset == cluster.quorum().replicas[0]["log_end_offset"] - 1
    assert cluster.state(at="committed").offset == cluster.committed_low - 1
    with pytest.raises(ValueError, match="expected an offset"):
        cluster.state(at="yesterday")


def test_a_table_that_is_not_there_is_named_with_those_that_are(cluster: kraft_audit.Cluster) -> None:
    assert isinstance(cluster.table("records"), pa.Table)
    assert cluster.table("records").num_rows == cluster.records().num_rows > 0
    assert cluster.table("findings").num_rows == len(cluster.check())
    with pytest.raises(KeyError, match=r"no table 'nope': there are findings, .*voter_sets"):
        cluster.table("nope")


def test_a_capture_is_a_moment_and_earlier_ones_are_evidence() -> None:
    with kraft_audit.open(DIVERGENCE) as clusters:
        (cluster,) = clusters
        first = cluster.quorum(capture=cluster.captures[0])
        assert first.capture == cluster.captures[0]
        assert cluster.quorum().capture != first.capture
        with pytest.raises(ChoiceError, match="no capture 'nope'"):
            cluster.state(capture="nope")
        assert [branch.is_canonical for branch in cluster.diverge()[0].branches].count(True) == 1


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"cluster_id": "nope"}, ChoiceError, "no cluster nope: there are ujhN1DIbH4nL9FFbdry94A"),
        ({"capture": "nope"}, ChoiceError, "no capture 'nope'"),
        ({"node_ids": [99]}, ChoiceError, "no log matches node 99"),
        ({"defaults": {"min.insync.replica": "2"}}, ValueError, "perhaps min.insync.replicas"),
        ({"defaults": {"min.insync.replicas": "x"}}, ValueError, "expected a number of replicas"),
        ({"dialect": "kip1"}, ValueError, "kip1"),
    ],
)
def test_what_is_not_there_is_said(options: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        kraft_audit.open(DIVERGENCE, **options)  # type: ignore[arg-type]


def test_nothing_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no metadata log"):
        kraft_audit.open(str(tmp_path))


@pytest.mark.slow
def test_files_are_open_for_as_long_as_somebody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    original = opener.open_storage

    def watched(path: str) -> object:
        manager = original(path)
        leave = manager.__exit__
        monkeypatch.setattr(type(manager), "__exit__", lambda self, *error: (closed.append(True), leave(*error))[1])
        return manager

    monkeypatch.setattr(opener, "open_storage", watched)
    (cluster,) = kraft_audit.open(ELR)
    gc.collect()
    assert not closed, "a cluster reads from it"
    assert cluster.survey.holds_anything
    del cluster
    gc.collect()
    assert closed == [True]


def test_a_cluster_is_read_once_for_all_that_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    original: Callable[..., object] = history_collector.read_history

    def counted(*arguments: object, **options: object) -> object:
        nonlocal count
        count += 1
        return original(*arguments, **options)

    monkeypatch.setattr(history_collector, "read_history", counted)
    (cluster,) = kraft_audit.open(ELR)
    cluster.check(), cluster.timeline(), cluster.whatif([11]), cluster.table("voter_sets")
    assert count == 1
    assert proven_rounds(cluster.survey, cluster.plan)
