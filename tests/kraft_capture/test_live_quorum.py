"""A real Kafka quorum under load is copied into an S3 server, by copiers that are killed, cut off and robbed.

Nothing is missing in the store afterwards, nothing in it accuses a replica, and the log dirs were only read. A lake is
fed from the store meanwhile: it accuses none, and what it says is committed is what a majority of the disks holds.
Longer: `KRAFT_CAPTURE_SOAK_SECONDS=600`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from kraft_capture.one_file import program_bytes
from tests.builders.cut_network import Relay, relay
from tests.builders.live_log import LogBatch, StoreWitness, whole_batches
from tests.builders.s3_server import s3_server
from tests.hostile.quorum import CONTROLLERS, FIRST_LEADER, Quorum, quorum

SECONDS: Final = float(os.environ.get("KRAFT_CAPTURE_SOAK_SECONDS", "30"))
pytestmark = [pytest.mark.kafka, pytest.mark.ci, pytest.mark.timeout(900 + int(SECONDS))]

IS_LONG: Final = SECONDS > 300
SHIP_EVERY_S: Final = 60 if IS_LONG else 20
RETENTION_BYTES: Final = 1_500_000 if IS_LONG else 30_000
"""What Kafka deletes before it is shipped is a gap where the state is lost, too: here it keeps minutes of its log."""
UNCOMMITTED_S: Final = 0.7
ACCUSERS: Final = {"KQ001", "KQ002", "KQ003", "KQ005", "KQ007", "KQ008", "KQ020", "KQ021", "KQ022"}
"""Rules that say that a replica lost, forgot or changed something: none did."""
RANDOM: Final = ("killed", "killed", "cut off", "truncated", "robbed", "looked")
WRITES: Final = re.compile(
    r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)|\b(unlink|rename|mkdir|rmdir|chmod|chown|utime|truncate|symlink|mknod)\w*\("
)


@dataclass
class Copier:
    """kraft-capture on one node, as one file in a process group of its own."""

    node: int
    log_dir: Path
    work: Path
    port: int
    program: Path
    process: subprocess.Popen[bytes] | None = None
    traces: list[Path] = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.work / f"state-{self.node}"

    def start(self) -> None:
        command = [*self.traced(), sys.executable, "-I", str(self.program), *self.options()]
        command += ["--every", "5" if IS_LONG else "2", "--ship-every", str(SHIP_EVERY_S)]
        with (self.work / f"copier-{self.node}.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def options(self) -> list[str]:
        to = ["--to", "s3://captures/kraft", "--endpoint-url", f"http://127.0.0.1:{self.port}", "--timeout", "5"]
        return ["--log-dirs", str(self.log_dir), "--state", str(self.state), *to]

    def traced(self) -> list[str]:
        """The first one runs under the system's record of its calls, where that is allowed."""
        if self.node != FIRST_LEADER or shutil.which("strace") is None:
            return []
        self.traces.append(self.work / f"trace-{len(self.traces)}")
        return ["strace", "-f", "-y", "-qq", "-e", "trace=%file,fcntl,flock", "-o", str(self.traces[-1])]

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(20)

    def finish(self) -> None:
        """One more run, which ships what is left."""
        command = [sys.executable, "-I", str(self.program), *self.options(), "--once", "--durable"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Relay]]:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with s3_server(monkeypatch, "captures") as (client, port), relay(port) as way:
        yield client, way


def test_copies_of_a_live_quorum(
    kafka_classpath: str, bucket: tuple[Any, Relay], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client, way = bucket
    chance = random.Random(7)  # noqa: S311
    logs, work = tmp_path / "logs", tmp_path / "work"
    for folder in (logs, work):
        folder.mkdir()
    program = work / "kraft-capture"
    program.write_bytes(program_bytes())
    with quorum(logs, work, kafka_classpath, metadata_max_retention_bytes=RETENTION_BYTES) as kafka:
        wait_for_topics(kafka)
        copiers = {node: Copier(node, kafka.nodes[node].folder, work, way.port, program) for node in kafka.nodes}
        try:
            for copier in copiers.values():
                copier.start()
            lake = FedLake(tmp_path, logs, capsys)
            happened = disturb(kafka, copiers, way, chance, client, tmp_path, capsys, lake)
            way.mend()
        finally:
            for copier in copiers.values():
                copier.kill()
    assert min(happened.values()) > 0, happened
    for copier in copiers.values():
        copier.finish()
    assert_only_read(copiers[FIRST_LEADER], logs)
    stored = download(client, tmp_path / "store")
    written, again = map(sum, zip(*(assert_nothing_is_missing(stored, node, logs) for node in copiers), strict=True))
    check_a_cut(stored, tmp_path / "final", capsys)
    ratio = (way.sent_bytes - again) / written
    sent = (
        f"{happened}; written {written:,} bytes, sent {way.sent_bytes:,}, {again:,} of it for a lost state: {ratio:.2f}"
    )
    # A short run ships every 20 s, and little each time: requests weigh more than the log.
    assert ratio < 1.1 or not IS_LONG, sent
    with capsys.disabled():
        sys.stdout.write(f"\n{sent}\n")
    lake.feed()
    lake.assert_committed_stays()


def wait_for_topics(kafka: Quorum) -> None:
    deadline = time.monotonic() + 200
    while not kafka.acknowledged():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def disturb(
    kafka: Quorum, copiers: dict[int, Copier], way: Relay, chance: random.Random, client: Any, folder: Path,
    capsys: pytest.CaptureFixture[str], lake: FedLake,
) -> dict[str, int]:  # fmt: skip
    """Kills, cuts, robs and truncates at random for a while; now and then looks at what is in the store."""
    happened = {"killed": 0, "cut off": 0, "robbed": 0, "truncated": 0, "looked": 0}
    # Each at least once, the rest at random.
    planned = ["killed", "cut off", "truncated", "robbed", "looked"]
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at or planned:
        time.sleep(chance.uniform(2, 6))
        what = planned.pop(0) if planned else chance.choice(RANDOM)
        happened[what] += 1
        copier = copiers[chance.choice(list(copiers))]
        if what in ("killed", "robbed"):
            copier.kill()
            if what == "robbed":
                shutil.rmtree(copier.state, ignore_errors=True)
            time.sleep(chance.uniform(0, 2))
            copier.start()
        elif what == "cut off":
            way.cut()
            time.sleep(chance.uniform(1, 8))
            way.mend()
        elif what == "truncated":
            kafka.cut_a_tail(UNCOMMITTED_S)
            time.sleep(4)
            kafka.nodes[FIRST_LEADER].start()
            time.sleep(4)
        else:
            target = folder / f"look-{happened[what]}"
            check_a_cut(download(client, target / "store"), target / "dirs", capsys)
            lake.feed()
    return happened


class FedLake:
    """A lake that is fed from the store now and then, as every hour. Each run is checked against the disks."""

    def __init__(self, folder: Path, logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.lake, self.fleet = folder / "lake", folder / "fleet.yaml"
        self._logs = logs
        self._capsys = capsys
        clusters = "clusters: [{name: live, paths: ['s3://captures/kraft/']}]"
        self.fleet.write_text(f"lake: {self.lake}\n{clusters}\n")

    def feed(self) -> None:
        """One run: it accuses none, and proves committed only what a majority of the disks holds by now."""
        done = json.loads(self._run("run", str(self.fleet), "--output", "json"))
        assert not done["failed"], done
        raised = [row for row in self._rows("findings") if row["status"] == "raised" and row["rule"] in ACCUSERS]
        assert not raised, raised
        ends = sorted(batches[-1].end_offset if (batches := on_disk(self._logs, node)) else 0 for node in CONTROLLERS)
        for row in self.watermarks():
            assert row["low"] <= ends[1], (row, ends)
            # Copies of different moments, as nodes ship on their own, and that is said.
            assert row["high"] is None or row["low"] <= row["high"] or row["undecided"], row

    def assert_committed_stays(self) -> None:
        """What was once proven committed stands on a majority of the disks at the end, unless Kafka cleaned it."""
        rows = self.watermarks()
        assert max(row["low"] for row in rows) > 0
        disks = [on_disk(self._logs, node) for node in CONTROLLERS]
        for row in rows:
            last = row["low"] - 1
            epochs = [
                next((b.epoch for b in batches if b.base_offset <= last < b.end_offset), None) for batches in disks
            ]
            cleaned = sum(last < batches[0].base_offset for batches in disks)
            assert cleaned + epochs.count(row["low_epoch"]) >= 2, (epochs, row)
            assert {*epochs} <= {row["low_epoch"], None}, (epochs, row)

    def watermarks(self) -> list[dict[str, Any]]:
        rows = self._rows("watermarks")
        assert rows
        return rows

    def _rows(self, table: str) -> list[dict[str, Any]]:
        """All that was ever found, also what was closed since."""
        rows: list[dict[str, Any]] = DeltaLake(str(self.lake)).queries(table)(f"SELECT * FROM {table}").to_pylist()  # noqa: S608
        return rows

    def _run(self, *arguments: str) -> str:
        code = run_command([*arguments])
        out, error = self._capsys.readouterr()
        assert code == 0, error
        return out


def on_disk(logs: Path, node: int) -> list[LogBatch]:
    folder = logs / f"node-{node}" / "__cluster_metadata-0"
    found: list[LogBatch] = []
    for path in sorted(folder.glob("*.log")):
        with contextlib.suppress(FileNotFoundError):  # cleaned meanwhile
            found += whole_batches(path.read_bytes())
    return found


def download(client: Any, folder: Path) -> Path:
    """The bucket as a folder, newest names last listed: a manifest is never older than its objects here."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="captures", Prefix="kraft/")
    keys = [(each["Key"], each["LastModified"]) for page in pages for each in page.get("Contents", [])]
    for key, modified in keys:
        target = folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(client.get_object(Bucket="captures", Key=key)["Body"].read())
        os.utime(target, (modified.timestamp(), modified.timestamp()))
    return folder / "kraft"


def replicas(stored: Path) -> dict[int, Path]:
    return {int(path.name.partition("-")[0]): path for path in stored.glob("*/*")}


def newest(witness: StoreWitness) -> tuple[Any, dict[str, Any]]:
    """The newest manifest by the store's clock."""
    found = [
        ((generation.folder / f"{seq:012d}.json.gz").stat().st_mtime, manifest["at_ms"], generation, manifest)
        for generation in witness.generations.values()
        for seq, manifest in generation.manifests.items()
    ]
    return max(found, key=lambda each: each[:2])[2:]


def assert_nothing_is_missing(stored: Path, node: int, logs: Path) -> tuple[int, int]:
    """All manifests of a node are whole and chained, no offset is missing, the last one is the disk.

    Returns the bytes that the node wrote, and those that were copied again because a state was lost.
    """
    witness = StoreWitness(replicas(stored)[node])
    witness.check()
    covered: list[tuple[int, int]] = []
    ever: dict[tuple[int, int], LogBatch] = {}
    snapshots: dict[str, int] = {}
    for generation in witness.generations.values():
        for manifest in generation.manifests.values():
            assert manifest["log"]["gaps"] == manifest["log"]["damage"] == []
            batches = witness.log(generation, manifest)
            ever |= {(batch.base_offset, batch.epoch): batch for batch in batches}
            covered.append((manifest["log"]["start_offset"], manifest["log"]["end_offset"]))
            snapshots |= {e["path"]: e["bytes"] for e in manifest["entries"] if e["path"].endswith(".checkpoint")}
    end = 0
    for low, high in sorted(covered):
        assert low <= end, f"offsets {end} to {low} of node {node} are in no manifest"
        end = max(end, high)
    there = on_disk(logs, node)
    assert witness.log(*newest(witness))[-len(there) :] == there
    starts = [generation.manifests[1] for generation in witness.generations.values() if generation.manifests]
    starts.sort(key=lambda manifest: manifest["at_ms"])
    again = [manifest for manifest in starts[1:] if manifest["parent"]["why"] == "no state"]
    ranges = [size for manifest in again for entry in manifest["entries"] for _, size, _ in entry.get("ranges", [])]
    return sum(len(batch.data) for batch in ever.values()) + sum(snapshots.values()), sum(ranges)


def check_a_cut(stored: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest manifest of each node as log dirs: `check` accuses no replica."""
    for node, path in replicas(stored).items():
        witness = StoreWitness(path)
        for name, data in witness.files(*newest(witness)).items():
            target = folder / f"node-{node}" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    code = run_command(["check", str(folder), "--output", "json", "--fail-on", "never", "--all"])
    out, error = capsys.readouterr()
    assert code == 0, error
    raised = {row["rule"] for row in json.loads(out) if row["status"] == "raised"}
    assert not raised & ACCUSERS, [row for row in json.loads(out) if row["rule"] in raised & ACCUSERS]


def assert_only_read(copier: Copier, logs: Path) -> None:
    lines = [
        line
        for trace in copier.traces
        if trace.exists()
        for line in trace.read_text(errors="replace").splitlines()
        if str(logs) in line
    ]
    assert lines or not copier.traces
    for line in lines:
        assert not WRITES.search(line), line
        assert "SETLK" not in line, line
