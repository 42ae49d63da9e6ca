"""What salvage takes out of brokers' disks, beside what the engine lost and what lies on those disks."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.files.state_files import EpochEntry, format_leader_epoch_checkpoint
from kraft_codec.records.compression import Codec
from tests.builders.broker_logs import Sent, marker, producer_batch, raw_batches
from tests.builders.commands import Command, Ended

SEGMENT = f"{0:020d}.log"
HOLDS_LOCK = (
    "import fcntl,sys;f=open(sys.argv[1],'w');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);sys.stdin.read()"
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stories in which stopped or down brokers hold what was lost, each played once."""
    from kraft_audit.commands.cli import run_command

    folder = tmp_path_factory.mktemp("played")
    stories = {}
    for name in ("loss-holders-stopped", "loss-holders-down", "loss-min-isr-lowered", "loss-stale-eligible"):
        assert run_command(["simulate", name, "--out", str(folder / name)]) == 0
        stories[name] = folder / name
    return stories


@pytest.fixture
def stopped(played: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the story in which 12 and 13 were stopped in order; the capture's only folder."""
    shutil.copytree(played["loss-holders-stopped"], tmp_path / "story")
    (capture,) = (each for each in (tmp_path / "story").iterdir() if each.is_dir())
    return capture


def lost(story: Path) -> dict[str, Any]:
    lines = map(json.loads, (story / "truth.jsonl").read_text().splitlines())
    (line,) = (line for line in lines if line["kind"] == "data_lost")
    return line


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def manifest_of(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return document


def rewritten(folder: Path, *batches: bytes, epochs: tuple[tuple[int, int], ...] = ((0, 0), (1, 9))) -> None:
    """The segment of a partition with other batches from offset 9 on, and the epochs that they have."""
    kept = b"".join(octets for base, _, octets in raw_batches(folder / SEGMENT) if base < 9)
    (folder / SEGMENT).write_bytes(kept + b"".join(batches))
    (folder / "leader-epoch-checkpoint").write_bytes(
        format_leader_epoch_checkpoint(tuple(EpochEntry(*each) for each in epochs))
    )


def decoded(line: dict[str, Any]) -> Sent:
    def content(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    headers = tuple(
        (each["key"].encode("utf-8", "surrogateescape"), content(each["value"])) for each in line["headers"]
    )
    return Sent(content(line["key"]), content(line["value"]), headers, line["timestamp_ms"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "broker"),
    [
        ("loss-holders-stopped", 12),
        ("loss-holders-down", 12),
        ("loss-min-isr-lowered", 13),
        ("loss-stale-eligible", 11),
    ],
)
def test_what_an_election_lost_comes_back_byte_for_byte(
    kraft_audit: Command, played: dict[str, Path], tmp_path: Path, name: str, broker: int
) -> None:
    truth, out = lost(played[name]), tmp_path / "out"
    ended = kraft_audit("salvage", played[name], "--out", out, "-o", "json")
    assert (ended.code, ended.err) == (0, "")
    (loss,) = json.loads(ended.out) if ended.out.startswith("[") else [json.loads(ended.out)]
    folder = out / f"orders-{truth['partition']}"
    assert (loss["leader_epoch"], loss["offset"]) == (truth["leader_epoch"], truth["election_offset"])
    (segment,) = played[name].glob(f"*/node-{broker}/orders-{truth['partition']}/{SEGMENT}")
    expected = {
        (epoch, base): octets
        for base, epoch, octets in raw_batches(segment)
        for part in truth["ranges"]
        if epoch == part["leader_epoch"] and part["from_offset"] <= base < part["to_offset"]
    }
    assert len(expected) == truth["to_offset"] - truth["from_offset"]
    raw = list(folder.glob("broker-*/*.log"))
    assert [file.parent.name for file in raw] == [f"broker-{broker}"]
    assert raw[0].read_bytes() == b"".join(expected.values())
    records = lines_of(folder / "records.jsonl")
    assert [(each["leader_epoch"], each["offset"]) for each in records] == list(expected)
    # The engine's batches hold one record, whose value is the last bytes before the header count.
    values = [base64.b64decode(each["value"]) for each in records]
    assert all(octets.endswith(value + b"\0") for value, octets in zip(values, expected.values(), strict=True))
    assert [each["key"] for each in records] == [None] * len(expected)


@pytest.mark.slow
def test_the_manifest_names_every_file_with_its_hash_and_only_the_owner_reads_them(
    kraft_audit: Command, stopped: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert kraft_audit("salvage", stopped, "--out", out).code == 0
    (partition,) = manifest_of(out)["partitions"]
    written = {each["name"]: each["sha256"] for each in partition["files"]}
    there = {str(file.relative_to(out)): file for file in out.rglob("*") if file.is_file()}
    assert set(written) | {"manifest.json"} == set(there)
    assert all(hashlib.sha256(there[name].read_bytes()).hexdigest() == digest for name, digest in written.items())
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (out, *out.rglob("*")) if each.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(file.stat().st_mode) for file in there.values()} == {0o600}
    (loss,) = partition["losses"]
    assert {each["broker_id"]: (each["state"], each["copy"]) for each in loss["holders"]} == {
        12: ("stopped", "captured"),
        13: ("stopped", "captured"),
    }
    assert (loss["from_offset"], loss["to_offset"], loss["is_exact"], loss["record_count"]) == (9, 18, True, 9)


@pytest.mark.slow
def test_records_of_all_codecs_come_back_as_they_were_sent(kraft_audit: Command, stopped: Path, tmp_path: Path) -> None:
    headers: tuple[tuple[bytes, bytes | None], ...] = ((b"trace", b"\x00\xff"), (b"none", None), (b"\xfe", b""))
    sent = [Sent(b"k%d" % n, b"v" * n if n else None, headers if n % 2 else (), 1_000 + n) for n in range(4)]
    sent[1] = Sent(None, bytes(2_000_000), headers, 1_001)  # compresses far better than 100:1
    batches = [producer_batch(9 + 4 * codec, 1, sent, codec=codec, producer=(77, 3, 2**31 - 2)) for codec in Codec]
    rewritten(stopped / "node-12/orders-0", *batches)
    out = tmp_path / "out"
    assert kraft_audit("salvage", stopped, "--out", out).code == 0
    records = lines_of(out / "orders-0/records.jsonl")
    assert [each["offset"] for each in records] == list(range(9, 29))
    assert [decoded(each) for each in records] == sent * 5
    assert {(each["producer_id"], each["producer_epoch"]) for each in records} == {(77, 3)}
    assert [each["sequence"] for each in records] == [2**31 - 2, 2**31 - 1, 0, 1] * 5  # sequences wrap
    (raw,) = out.glob("orders-0/broker-12/*.log")
    assert raw.read_bytes() == b"".join(batches)
    (partition,) = manifest_of(out)["partitions"]
    assert partition["producers"] == [{"producer_id": 77, "producer_epochs": [3], "record_count": 20}]


@pytest.mark.slow
def test_transactions_keep_their_markers_and_what_was_aborted_is_not_sent_again(
    kraft_audit: Command, stopped: Path, tmp_path: Path
) -> None:
    folder = stopped / "node-12/orders-0"
    texts = {"committed": (9, 50), "aborted": (10, 51), "open": (11, 52)}
    batches = [
        producer_batch(offset, 1, [Sent(b"k", text.encode())], producer=(pid, 0, 0), is_transactional=True)
        for text, (offset, pid) in texts.items()
    ]
    batches += [marker(12, 1, (50, 0), is_commit=True), marker(13, 1, (51, 0), is_commit=False)]
    rewritten(folder, *batches, producer_batch(14, 1, [Sent(b"a\tb", b"x"), Sent(b"k", b"a\nb"), Sent(b"k", b"\xff")]))
    (folder / f"{0:020d}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 51, 10, 13, 11))
    out = tmp_path / "out"
    assert kraft_audit("salvage", stopped, "--out", out).code == 0
    # Broker 13 has its own records at these offsets of the same epoch: the surest disk's are taken, once.
    markers = lines_of(out / "orders-0/markers.jsonl")
    assert [(each["offset"], each["producer_id"], each["type"], each["coordinator_epoch"]) for each in markers] == [
        (12, 50, "COMMIT", 7),
        (13, 51, "ABORT", 7),
    ]
    assert lines_of(out / "orders-0/aborted.jsonl") == [{"producer_id": 51, "first_offset": 10, "last_offset": 13}]
    assert [each["offset"] for each in lines_of(out / "orders-0/records.jsonl")][:6] == [9, 10, 11, 14, 15, 16]
    (partition,) = manifest_of(out)["partitions"]
    left_out = partition["producer_input"]["left_out"]
    assert left_out == {"aborted": 1, "transaction_without_marker": 1, "no_line_of_text": 3}
    assert (out / "orders-0/producer-input.txt").read_text().splitlines()[0] == "__null__\tk\tcommitted"


@pytest.mark.slow
def test_no_epoch_and_offset_is_written_twice_and_a_longer_disk_adds_its_tail(
    kraft_audit: Command, stopped: Path, tmp_path: Path
) -> None:
    tail = producer_batch(18, 1, [Sent(b"only", b"on 13"), Sent(b"only", b"there")])
    own = [octets for base, _, octets in raw_batches(stopped / "node-13/orders-0" / SEGMENT) if base >= 9]
    rewritten(stopped / "node-13/orders-0", *own, tail)
    out = tmp_path / "out"
    assert kraft_audit("salvage", stopped, "--out", out).code == 0
    records = lines_of(out / "orders-0/records.jsonl")
    assert [(each["leader_epoch"], each["offset"]) for each in records] == [(1, offset) for offset in range(9, 20)]
    assert (out / f"orders-0/broker-13/{9:020d}.log").read_bytes() == tail


@pytest.mark.slow
@pytest.mark.parametrize("other_disk", [True, False])
def test_damaged_bytes_are_copied_and_named(
    kraft_audit: Command, stopped: Path, tmp_path: Path, other_disk: bool
) -> None:
    file = stopped / "node-12/orders-0" / SEGMENT
    content, position = bytearray(file.read_bytes()), 0
    for base, _, octets in raw_batches(file):
        if base == 11:
            content[position + len(octets) - 2] ^= 1
            damaged = bytes(content[position : position + len(octets)])
            break
        position += len(octets)
    file.write_bytes(content + b"\x01" * 40)  # and a torn tail
    if not other_disk:
        shutil.rmtree(stopped / "node-13/orders-0")
    out = tmp_path / "out"
    ended = kraft_audit("salvage", stopped, "--out", out)
    (partition,) = manifest_of(out)["partitions"]
    assert [(each["position"], each["size_bytes"], each["reason"]) for each in partition["damaged"]] == [
        (position, len(damaged), "BAD_CRC"),
        (len(content), 40, "TORN_TAIL"),
    ]
    named = partition["damaged"][0]
    raw = (out / named["raw_file"]).read_bytes()
    assert raw[named["raw_position"] :][: named["size_bytes"]] == damaged
    offsets = sorted(each["offset"] for each in lines_of(out / "orders-0/records.jsonl"))
    assert offsets == [offset for offset in range(9, 18) if other_disk or offset != 11]
    assert {each["is_covered"] for each in partition["damaged"]} == {other_disk}
    assert ended.code == (0 if other_disk else 4)


@pytest.mark.slow
def test_without_a_leaders_disk_the_bound_is_the_holders_own(
    kraft_audit: Command, stopped: Path, tmp_path: Path
) -> None:
    shutil.rmtree(stopped / "node-11/orders-0")
    ended = kraft_audit("salvage", stopped, "--out", tmp_path / "out", "-o", "json")
    assert ended.code == 0
    (loss,) = json.loads(ended.out)
    # Broker 11 crashed before it was elected: its disk may lack anything that it had not flushed.
    assert (loss["from_offset"], loss["is_exact"], loss["record_count"]) == (0, False, 18)
    assert "nothing shows what the leader kept" in loss["bound"]


@pytest.mark.slow
def test_the_plan_writes_nothing_and_says_which_disks_are_missing(
    kraft_audit: Command, stopped: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert kraft_audit("salvage", stopped, "--plan").code == 0
    for node in (12, 13):
        (stopped / f"node-{node}/orders-0" / SEGMENT).unlink()
    ended = kraft_audit("salvage", stopped, "--plan")
    assert ended.code == 4
    assert "its segments were not captured: copy node-12/orders-0 from broker 12" in ended.out
    gone = [path for path in before if path.name == SEGMENT and path.parent.parent.name in ("node-12", "node-13")]
    assert sorted(tmp_path.rglob("*")) == [
        path for path in before if path not in gone or path.parent.name != "orders-0"
    ]
    out = tmp_path / "out"
    assert kraft_audit("salvage", stopped, "--out", out).code == 4
    assert not out.exists()


@pytest.mark.slow
def test_nothing_of_a_record_is_printed(kraft_audit: Command, stopped: Path, tmp_path: Path) -> None:
    secret = b"user-data-4711"
    rewritten(stopped / "node-12/orders-0", producer_batch(9, 1, [Sent(secret, secret, ((secret, secret),))]))
    printed = [kraft_audit("salvage", stopped, "--out", tmp_path / "out")]
    printed += [kraft_audit("salvage", stopped, "--out", tmp_path / form, "-o", form) for form in ("json", "csv")]
    printed += [kraft_audit("salvage", stopped, "--plan"), kraft_audit("check", stopped)]
    shown = "".join(each.out + each.err for each in printed)
    for text in (secret.decode(), base64.b64encode(secret).decode()):
        assert text not in shown
        assert text not in (tmp_path / "out/manifest.json").read_text()
    assert base64.b64encode(secret).decode() in (tmp_path / "out/orders-0/records.jsonl").read_text()


@pytest.mark.slow
def test_it_refuses_what_would_harm(kraft_audit: Command, stopped: Path, tmp_path: Path) -> None:
    filled = tmp_path / "filled"
    filled.mkdir()
    (filled / "a").touch()

    def refused(*arguments: str | Path) -> Ended:
        before = sorted(stopped.rglob("*"))
        ended = kraft_audit("salvage", stopped, *arguments)
        assert sorted(stopped.rglob("*")) == before
        return ended

    assert refused("--out", filled).code == 2
    assert refused("--out", stopped / "salvaged").code == 2
    assert refused().code == 2
    assert refused("--plan", "--out", tmp_path / "both").code == 2
    lock = stopped / "node-12/.lock"
    arguments = [sys.executable, "-c", HOLDS_LOCK, str(lock)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "held\n"
        ended = kraft_audit("salvage", stopped, "--out", tmp_path / "live")
        broker.communicate("")
    assert ended.code == 3
    assert f"process {broker.pid} holds its .lock" in ended.err
    assert not (tmp_path / "live").exists()
    assert kraft_audit("salvage", stopped, "--out", tmp_path / "live").code == 0


@pytest.mark.slow
def test_a_copied_holder_may_start(kraft_audit: Command, stopped: Path, tmp_path: Path) -> None:
    def may_start(path: Path, copied: Path) -> tuple[int, str]:
        ended = kraft_audit("may-i", "start", 12, path, "--copied", copied)
        return ended.code, ended.out

    out, copy = tmp_path / "out", tmp_path / "copy"
    assert kraft_audit("may-i", "start", 12, stopped).code == 1
    assert kraft_audit("salvage", stopped, "--out", out).code == 0
    code, text = may_start(stopped, out)
    assert code == 0
    assert "It will truncate orders-0" in text
    shutil.copytree(stopped / "node-12", copy / "node-12")
    assert may_start(stopped, copy)[0] == 0
    assert kraft_audit("may-i", "wipe", 12, stopped, "--copied", out).code == 2
    # A copy that is shorter than the disk, another broker's, and one whose bytes changed are none.
    segment = copy / "node-12/orders-0" / SEGMENT
    segment.write_bytes(b"".join(octets for base, _, octets in raw_batches(segment) if base < 15))
    code, text = may_start(stopped, copy)
    assert code == 1
    assert "its orders-0 ends at 15, that of the broker at 18" in text
    assert may_start(stopped, stopped / "node-13")[0] == 1
    assert may_start(stopped, tmp_path / "none")[0] == 3
    (raw,) = out.glob("orders-0/broker-12/*.log")
    raw.write_bytes(raw.read_bytes()[::-1])
    assert may_start(stopped, out)[0] == 1
    (out / "manifest.json").write_text("{")
    assert may_start(stopped, out)[0] == 3
