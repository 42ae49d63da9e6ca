"""Ten thousand pairs and triples of small logs that part somewhere: the first offset at which they do, exactly."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kraft_audit.capture.branches import BranchTree
from kraft_audit.capture.reconcile import windows
from kraft_audit.capture.scanner import Chunk

Batch = tuple[int, int, int, int]
"""(base offset, last offset, epoch, crc): what a batch is known by."""


def goes_on(chance: random.Random, log: list[Batch], count: int, epoch: int) -> list[Batch]:
    """The log with `count` more batches of an epoch that may rise."""
    grown = list(log)
    for _ in range(count):
        base = grown[-1][1] + 1 if grown else 0
        epoch += chance.random() < 0.2
        grown.append((base, base + chance.randrange(3), epoch, chance.randrange(1 << 32)))
    return grown


def parted(chance: random.Random) -> list[list[Batch]]:
    """Two logs or three that share a beginning: one cut off, one of another epoch, one of other bytes, or all equal."""
    shared = goes_on(chance, [], chance.randrange(1, 12), 1)
    epoch = shared[-1][2]
    logs = []
    for _ in range(chance.choice((2, 2, 3))):
        kind = chance.choice(("cut", "other epoch", "other bytes", "equal"))
        if kind == "cut":
            logs.append(shared[: chance.randrange(1, len(shared) + 1)])
        elif kind == "equal":
            logs.append(list(shared))
        else:
            risen = epoch + (kind == "other epoch") * chance.randrange(1, 3)
            logs.append(goes_on(chance, shared[: chance.randrange(1, len(shared) + 1)], chance.randrange(1, 5), risen))
    return logs


def replica_of(chance: random.Random, number: int, log: list[Batch]) -> Any:
    """A replica that is read by chunks of a few batches."""
    chunks, start = [], 0
    while start < len(log):
        end = start + chance.randrange(1, 6)
        names = ("base_offset", "last_offset", "leader_epoch", "crc")
        columns = [np.array(column, np.int64) for column in zip(*log[start:end], strict=True)]
        content = np.stack(columns, axis=1).view(np.uint8)  # a batch's bytes are its key
        count, width_bytes = content.shape
        index: Any = SimpleNamespace(
            position=np.arange(count) * width_bytes,
            size_bytes=np.full(count, width_bytes),
            **dict(zip(names, columns, strict=True)),
        )
        nothing: Any = None
        chunks.append(Chunk(nothing, content.reshape(-1), 0, index, np.arange(count)))
        start = end
    return SimpleNamespace(number=number, log=SimpleNamespace(chunks=lambda: iter(chunks)))


@pytest.mark.parametrize("seeds", [range(500), pytest.param(range(500, 10_500), marks=pytest.mark.ci)])
def test_the_first_offset_at_which_logs_part(seeds: range) -> None:
    partings = 0
    for seed in seeds:
        chance = random.Random(seed)  # noqa: S311
        logs = parted(chance)
        replicas = [replica_of(chance, number, log) for number, log in enumerate(logs)]
        tree = BranchTree(range(len(logs)))
        for window in windows(replicas, lambda *_: None, lambda _: None):
            holdings = {part.replica.number: part.numbers for part in window.slices}
            tree.grow(window.batches, holdings)
        paths = [path_of(tree, end.branch) for end in tree.ends()]
        ends = [(log[-1][1] + 1, log[-1][2]) for log in logs]
        assert [(end.end_offset, end.last_epoch) for end in tree.ends()] == ends
        for first in range(len(logs)):
            for second in range(first):
                partings += check_pair(tree, (logs[first], paths[first]), (logs[second], paths[second]), seed)
    assert partings > len(seeds) // 10


def check_pair(tree: BranchTree, first: Any, second: Any, seed: int) -> bool:
    """Where two logs part, the branches that they do not share begin at just that offset; else one holds the other."""
    (first_log, first_path), (second_log, second_path) = first, second
    same = sum(1 for mine, theirs in zip(first_log, second_log, strict=False) if mine == theirs)
    shared = sum(1 for mine, theirs in zip(first_path, second_path, strict=False) if mine == theirs)
    if same in (len(first_log), len(second_log)):
        assert shared in (len(first_path), len(second_path)), seed
        return False
    for path, log in ((first_path, first_log), (second_path, second_log)):
        assert tree.branches[path[shared]].from_offset == log[same][0], seed
    return True


def path_of(tree: BranchTree, branch: int | None) -> list[int]:
    """The branches from the first one to this."""
    path: list[int] = []
    while branch is not None:
        path.insert(0, branch)
        branch = tree.branches[branch].parent
    return path
