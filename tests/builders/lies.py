"""Lies of one disk: one file of one node dir is changed, as a broken disk, a bad copy or a person would do it.

A consistent other disk is another disk and no lie, so files are changed one at a time.
"""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

from tests.builders.live_log import whole_batches

LOG = "__cluster_metadata-0"
EPOCH_AT = 12
COUNT_AT = 57
Lie = Callable[[random.Random, Path, Path], str | None]
"""Changes one file of a node dir, given the dir of another node too; says what it did, None where it cannot be told."""


def tell(seed: int, node: Path, other: Path) -> str:
    """Tells a lie on a node's disk. Files keep their times: those are evidence of their own."""
    chance = random.Random(seed)  # noqa: S311
    times_ns = {path: path.stat().st_mtime_ns for path in node.rglob("*") if path.is_file()}
    while (told := chance.choice(LIES)(chance, node, other)) is None:
        pass
    for path in filter(Path.is_file, node.rglob("*")):
        time_ns = times_ns.get(path, max(times_ns.values()))
        os.utime(path, ns=(time_ns, time_ns))
    return f"{node.name}: {told}"


def _segment(chance: random.Random, node: Path) -> tuple[Path, bytearray] | None:
    """A segment that holds more than a batch's header."""
    files = [path for path in sorted((node / LOG).glob("*.log")) if path.stat().st_size > COUNT_AT + 4]
    if not files:
        return None
    path = chance.choice(files)
    return path, bytearray(path.read_bytes())


def _rewrite(path: Path, data: bytes | bytearray) -> str:
    path.write_bytes(data)
    return path.name


def batch_epoch(chance: random.Random, node: Path, _: Path) -> str | None:
    """One bit of the epoch of one batch, often the last: no CRC covers it."""
    segment = _segment(chance, node)
    if segment is None:
        return None
    path, data = segment
    starts, at = [], 0
    for batch in whole_batches(bytes(data)):
        starts.append(at)
        at += len(batch.data)
    if not starts:
        return None
    number = chance.choice([len(starts) - 1, chance.randrange(len(starts))])
    (epoch,) = struct.unpack_from(">i", data, starts[number] + EPOCH_AT)
    struct.pack_into(">i", data, starts[number] + EPOCH_AT, epoch ^ (1 << chance.randrange(6)))
    return f"{_rewrite(path, data)}: epoch of batch {number} of {len(starts)}"


def batch_count(chance: random.Random, node: Path, _: Path) -> str | None:
    """One bit of a batch's record count."""
    segment = _segment(chance, node)
    if segment is None:
        return None
    path, data = segment
    data[COUNT_AT + 3] ^= 1 << chance.randrange(4)
    return f"{_rewrite(path, data)}: record count"


def any_bit(chance: random.Random, node: Path, _: Path) -> str:
    """One bit of any file."""
    files = sorted(path for path in node.rglob("*") if path.is_file() and path.stat().st_size)
    path = chance.choice(files)
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)
    return f"{_rewrite(path, data)}: a bit of byte {at}"


def cut_log(chance: random.Random, node: Path, _: Path) -> str | None:
    """A log that ends early, within a batch or between two."""
    segment = _segment(chance, node)
    if segment is None:
        return None
    path, data = segment
    length = chance.choice([0, chance.randrange(len(data) + 1), min(len(data), chance.randrange(1_000))])
    return f"{_rewrite(path, data[:length])}: cut to {length} of {len(data)}"


def no_file(chance: random.Random, node: Path, _: Path) -> str:
    """A file is gone."""
    path = chance.choice(sorted(path for path in node.rglob("*") if path.is_file()))
    path.unlink()
    return f"{path.name}: gone"


def checkpoint(chance: random.Random, node: Path, _: Path) -> str | None:
    """leader-epoch-checkpoint names another epoch or offset, one more, or one less."""
    path = node / LOG / "leader-epoch-checkpoint"
    if not path.exists():
        return None
    version, _count, *lines = path.read_text().splitlines()
    entries = [list(map(int, line.split())) for line in lines]
    what = chance.choice(["epoch", "offset", "more", "less"])
    if what == "more":
        last = entries[-1] if entries else [0, 0]
        entries.append([last[0] + chance.randrange(1, 5), last[1] + chance.randrange(80)])
    elif entries and what == "less":
        entries.pop(chance.randrange(len(entries)))
    elif entries:
        place = chance.randrange(len(entries))
        entries[place][what == "offset"] += chance.choice([-1, 1, 2, 5])
    texts = [version, str(len(entries)), *(f"{epoch} {offset}" for epoch, offset in entries)]
    path.write_text("\n".join(texts) + "\n")
    return f"{path.name}: {what}, now {entries}"


def quorum_state(chance: random.Random, node: Path, _: Path) -> str | None:
    """quorum-state names another epoch, leader or vote."""
    path = node / LOG / "quorum-state"
    if not path.exists():
        return None
    text = path.read_text()
    for name in chance.sample(["leaderEpoch", "leaderId", "votedId"], chance.randrange(1, 4)):
        value = chance.choice([-1, 1, 2, 3]) if name != "leaderEpoch" else chance.randrange(60)
        text = re.sub(rf'"{name}":-?\d+', f'"{name}":{value}', text)
    path.write_text(text)
    return f"{path.name}: {text}"


def identity(chance: random.Random, node: Path, other: Path) -> str | None:
    """meta.properties says another node, cluster or directory."""
    path = node / "meta.properties"
    if not path.exists() or not (other / "meta.properties").exists():
        return None
    name = chance.choice(["node.id", "directory.id", "cluster.id"])
    (value,) = re.findall(rf"(?m)^{name}=(.*)$", (other / "meta.properties").read_text()) or [""]
    if name == "cluster.id":
        value = "AAAAAAAAAAAAAAAAAAAAAQ"
    path.write_text(re.sub(rf"(?m)^{name}=.*$", f"{name}={value}", path.read_text()))
    return f"{path.name}: {name}={value}"


def renamed_snapshot(chance: random.Random, node: Path, _: Path) -> str | None:
    """A snapshot gets another name."""
    files = sorted((node / LOG).glob("*-*.checkpoint"))
    if not files:
        return None
    path = chance.choice(files)
    target = path.with_name(f"{chance.randrange(1, 200):020d}-{chance.randrange(1, 4):010d}.checkpoint")
    is_moved = chance.random() < 0.5
    target.write_bytes(path.read_bytes())
    if is_moved and path != target:
        path.unlink()
    return f"{path.name}: {'' if is_moved else 'also '}as {target.name}"


def foreign(chance: random.Random, node: Path, other: Path) -> str:
    """A file of another node's disk."""
    files = sorted(path for path in other.rglob("*") if path.is_file())
    source = chance.choice(files)
    target = node / source.relative_to(other)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    return f"{source.name}: that of {other.name}"


LIES: tuple[Lie, ...] = (
    batch_epoch,
    batch_epoch,
    batch_count,
    any_bit,
    cut_log,
    no_file,
    checkpoint,
    checkpoint,
    quorum_state,
    quorum_state,
    identity,
    renamed_snapshot,
    foreign,
)
