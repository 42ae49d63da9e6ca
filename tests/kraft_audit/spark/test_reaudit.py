"""A lake whose log dirs and key are gone: replayed again the same, and exported as Kafka's own tool reads it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.pipeline import lake_alone
from kraft_audit.lake.staging.archive_reading import REPLAYED
from kraft_audit.tables import FINDINGS_STAGED, LAKE_TABLES
from tests.builders.lakes import CopyAged, MakeFleet, captures_of, plan_rows
from tests.builders.without_spark import run_from_archive

CLUSTERS = ("elr", "divergence", "torn-write")


@pytest.fixture
def lake(
    make_fleet: MakeFleet, small_corpus: Path, tmp_path: Path, copy_aged: CopyAged, without_spark: ModuleType
) -> str:
    """A lake of one plan, without the log dirs and the key that it was made of."""
    logs = tmp_path / "logs"
    for name in CLUSTERS:
        copy_aged(small_corpus / name, logs / name)
    fleet = make_fleet({name: [logs / name] for name in CLUSTERS})
    assert without_spark.run(fleet).exit_code == 0
    shutil.rmtree(logs)
    Path(fleet.redaction_key_file or "").unlink()
    return fleet.lake


@pytest.mark.slow
def test_the_same_rows_from_delta_alone(lake: str) -> None:
    bronze = {name: DeltaLake(lake).open(name).version() for name in ("captures", "batches", "records", "archive")}
    number = run_from_archive(lake_alone(lake))
    assert number == 2
    for table in sorted(REPLAYED | {FINDINGS_STAGED.name}):
        assert plan_rows(lake, table, 2) == plan_rows(lake, table, 1), table
    assert len(plan_rows(lake, "partition_changes", 2)) > 500
    assert {name: DeltaLake(lake).open(name).version() for name in bronze} == bronze, "nothing read twice"
    assert run_from_archive(lake_alone(lake, ["elr"])) == 3
    assert {json.loads(row)["cluster_id"] for row in plan_rows(lake, "replays", 3)} == {"SPA6Lw-19VaaSAxl6jMkhw"}
    assert Ledger(DeltaLake(lake)).status().closed == 3


@pytest.mark.slow
def test_many_plans_are_reported_as_one(
    small_corpus: Path, tmp_path: Path, in_steps_and_whole: Callable[[str, list[Path]], tuple[str, str]]
) -> None:
    """Captures that came one by one, a branch cut off between them: the archive gives the same as a single run."""
    steps_lake, whole = in_steps_and_whole("divergence", captures_of(small_corpus / "divergence"))
    shutil.rmtree(tmp_path / "logs")
    steps = lake_alone(steps_lake)
    number = run_from_archive(steps)
    for table in sorted(REPLAYED - {"replays"}):
        assert plan_rows(steps.lake, table, number) == plan_rows(whole, table, 1), table


@pytest.mark.slow
def test_what_cannot_be_is_said_in_one_line(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ended(*arguments: str | Path) -> tuple[int, str]:
        code = run_command([str(argument) for argument in arguments])
        return code, capsys.readouterr().err

    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("keep me")
    assert ended("lake", "export", lake, "--cluster", "elr", "--out", full)[0] == 2
    assert [path.name for path in full.iterdir()] == ["mine"]
    for code, words, arguments in (
        (2, "above --from", ("lake", "export", lake, "--from", "7", "--to", "7", "--out", tmp_path / "x")),
        (2, "no cluster 'absent': there are", ("lake", "export", lake, "--cluster", "absent", "--out", tmp_path / "x")),
        (2, "more than one cluster: there are", ("lake", "export", lake, "--out", tmp_path / "x")),
        (3, "nothing between", ("lake", "export", lake, "--cluster", "elr", "--from", "9999", "--out", tmp_path / "x")),
        (3, "no such folder", ("lake", "export", tmp_path / "nowhere", "--out", tmp_path / "x")),
        (2, "--from archive with --lake LAKE", ("run", "--from", "archive")),
        (3, "there is no archive", ("run", "--from", "archive", "--lake", tmp_path / "nowhere")),
    ):
        found, second = ended(*arguments)
        assert (found, len(second.splitlines())) == (code, 1), second
        assert words in second
    assert not (tmp_path / "x").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".unfinished")]


@pytest.mark.kafka
@pytest.mark.slow
def test_kafkas_own_tool_reads_an_export(lake: str, small_corpus: Path, tmp_path: Path, kafka_classpath: str) -> None:
    """Every batch valid; the same lines as of the original, but for secrets, and CRCs where there were some."""
    assert run_command(["lake", "export", lake, "--cluster", "elr", "--out", str(tmp_path / "exported")]) == 0
    segment = "__cluster_metadata-0/00000000000000000000.log"
    nodes = sorted((small_corpus / "elr" / "29-stopped").glob(f"*/{segment}"), key=lambda path: path.stat().st_size)
    texts = []
    for path in (nodes[-1], tmp_path / "exported" / segment):
        tool = ["java", "-Dfile.encoding=UTF-8", "-cp", kafka_classpath, "org.apache.kafka.tools.DumpLogSegments"]
        options = ["--cluster-metadata-decoder", "--deep-iteration", "--files", str(path)]
        utf_8 = os.environ | {"LC_ALL": "C.UTF-8"}
        run = subprocess.run(
            [*tool, *options], capture_output=True, encoding="utf-8", env=utf_8, timeout=100, check=True
        )
        texts.append(run.stdout.splitlines()[1:])
    before, after = texts
    assert len(after) == len(before) > 1000
    assert not [line for line in after if "isvalid: false" in line or "Error" in line]
    differing = [(first, second) for first, second in zip(before, after, strict=True) if first != second]
    assert differing
    secret = re.compile(r'"(value|salt|storedKey|serverKey|tokenId)":"[^"]*"|crc: \d+')
    assert [secret.sub("", first) for first, _ in differing] == [secret.sub("", second) for _, second in differing]
    types = {match[1] for first, _ in differing if (match := re.search(r'"type":"(\w+)"', first))}
    assert types <= {
        "USER_SCRAM_CREDENTIAL_RECORD",
        "DELEGATION_TOKEN_RECORD",
        "REMOVE_DELEGATION_TOKEN_RECORD",
        "CONFIG_RECORD",
    }


@pytest.mark.ci
@pytest.mark.spark
@pytest.mark.timeout(280)
def test_the_command_by_spark(lake: str, project_root: Path) -> None:
    job = [sys.executable, str(project_root / "jobs" / "run.py"), "--from", "archive", "--lake", lake]
    ended = subprocess.run([*job, "--output", "json"], capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["plans"] == [2]
    for table in ("partition_changes", "voter_sets", "leader_epochs"):
        assert plan_rows(lake, table, 2) == plan_rows(lake, table, 1), table


def test_every_replayed_table_is_one_of_the_lake() -> None:
    assert set(LAKE_TABLES) >= REPLAYED
