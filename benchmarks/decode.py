"""Bytes to Arrow columns, against kafka-dump-log, kafka-python, aiokafka, and the same kernels in C.

python -m benchmarks.decode [--mib 64] [--pairs 5] [--real PATH.log] [--without-java]
"""

from __future__ import annotations

import argparse
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.decode_peers import (
    KAFKA_RELEASE,
    PeerError,
    aiokafka_framing,
    c_kernels,
    c_verify,
    in_place_of_ours,
    kafka_classpath,
    kafka_dump_log_seconds,
    kafka_python_framing,
)
from benchmarks.figures import Figure, Skipped, paired, print_figures, processor_seconds, rate
from benchmarks.synthetic_log import synthetic_log
from kraft_audit.capture.continuity import LogState, check_continuity
from kraft_audit.capture.scanner import CHUNK_BYTES_MAX
from kraft_codec.columns import RecordIndex, index_batches, index_records, json_text, typed_columns
from kraft_engine.runs.simulate import simulate

CHUNK_BYTES = CHUNK_BYTES_MAX
"""As much as the pipeline decodes at once."""
SLOW_PEER_BYTES = 10_000_000
"""What peers that read a few MB a second are given."""
Log = npt.NDArray[np.uint8]


def chunks(log: Log) -> Iterator[RecordIndex]:
    """The log's records in chunks, as the pipeline reads them."""
    position = 0
    while position < len(log):
        end = min(position + CHUNK_BYTES, len(log))
        batches = index_batches(log, position, end, is_last=end == len(log))
        if batches.consumed_bytes == position:
            raise ValueError(f"no whole batch in the {end - position} bytes at {position}")
        position = batches.consumed_bytes
        yield index_records(log, batches)


def verify(log: Log) -> tuple[int, int]:
    """Framing, CRC and continuity, a chunk at a time as the pipeline reads: how many batches, and what was found."""
    state, position, count, odd = LogState(), 0, 0, 0
    while position < len(log):
        end = min(position + CHUNK_BYTES, len(log))
        batches = index_batches(log, position, end, is_last=end == len(log))
        position = batches.consumed_bytes
        _, findings = check_continuity(batches, state, None)
        count, odd = count + len(batches), odd + len(findings)
    return count, odd


def decode_typed(log: Log) -> int:
    """Every record of every type into the typed columns of its type."""
    count = 0
    for records in chunks(log):
        count += sum(typed_columns(records, message).num_rows for message in records.messages())
    return count


def tables(log: Log) -> list[pa.RecordBatch]:
    """All typed columns of a log: to see that two kernels make the same."""
    return [typed_columns(records, message) for records in chunks(log) for message in records.messages()]


def decode_json(log: Log) -> int:
    """Every record into its envelope and Kafka's JSON."""
    return sum(len(json_text(records)) for records in chunks(log))


def figures(label: str, log: Log, pairs: int, *, with_java: bool) -> Iterator[Figure | Skipped]:
    """All figures of one log."""
    small = whole_batches(log, SLOW_PEER_BYTES)
    count, small_count = decode_typed(log), decode_typed(small)
    yield from _against_c(label, log, count, pairs)
    for name, asked, start in (
        ("kafka-python's framing alone", 10, kafka_python_framing),
        ("aiokafka's framing alone (compiled; a stretch)", 1, aiokafka_framing),
    ):
        title = f"{label}: typed columns / {name}"
        try:
            peer = start(small.tobytes())
        except PeerError as error:
            yield Skipped(title, str(error))
            continue
        assert peer() == small_count
        ratio, mine, theirs = paired(lambda: decode_typed(small), peer, pairs)
        size = len(small)
        yield Figure(title, ratio, asked, rate(size, small_count, mine), rate(size, small_count, theirs))
    yield from _against_dump_log(label, small, small_count, pairs, with_java=with_java)


def _against_c(label: str, log: Log, count: int, pairs: int) -> Iterator[Figure | Skipped]:
    names = (
        "verify / the same in C -O3",
        "verify / C -O3 that keeps no column of it",
        "CRC + decode into typed columns / the same in C -O3",
    )
    titles = [f"{label}: {name}" for name in names]
    try:
        c_kernels()
    except PeerError as error:
        yield from (Skipped(title, str(error)) for title in titles)
        return
    part = whole_batches(log, SLOW_PEER_BYTES)
    assert by_c(tables, part) == tables(part)
    assert_same_verdicts(part)
    assert c_verify(log)() == by_c(verify, log) == verify(log)
    peers: tuple[Callable[[], Any], ...] = (lambda: by_c(verify, log), c_verify(log), lambda: by_c(decode_typed, log))
    for title, run, peer in zip(titles, (verify, verify, decode_typed), peers, strict=True):
        ratio, mine, theirs = paired(lambda run=run: run(log), peer, pairs)  # type: ignore[misc]
        records = count if run is decode_typed else 0
        yield Figure(title, ratio, 0.6, rate(len(log), records, mine), rate(len(log), records, theirs))


def by_c(run: Callable[[Log], Any], log: Log) -> Any:
    """The same on C's kernels."""
    with in_place_of_ours(c_kernels()):
        return run(log)


def assert_same_verdicts(log: Log) -> None:
    """All sides see a wrong byte, a missing batch and an epoch that fell: neither leaves out what the other does."""
    batches = index_batches(log)
    middle = len(batches) // 2
    start, end = int(batches.position[middle]), int(batches.position[middle] + batches.size_bytes[middle])
    wrong_byte, old_epoch = log.copy(), log.copy()
    wrong_byte[end - 1] ^= 1
    old_epoch[start + 12 : start + 16] = 0xFF  # -1: below any other
    for damaged in (wrong_byte, np.concatenate((log[:start], log[end:])), old_epoch):
        assert by_c(verify, damaged) == verify(damaged)
        assert verify(damaged)[1] > 0
        assert c_verify(damaged)()[1] > 0


def _against_dump_log(label: str, log: Log, count: int, pairs: int, *, with_java: bool) -> Iterator[Figure | Skipped]:
    titles = [f"{label}: {name} / kafka-dump-log {KAFKA_RELEASE}" for name in ("typed columns", "JSON text")]
    try:
        if not with_java:
            raise PeerError("--without-java")
        kafka_classpath()
    except PeerError as error:
        yield from (Skipped(title, str(error)) for title in titles)
        return
    theirs = kafka_dump_log_seconds(log.tobytes(), whole_batches(log, 0).tobytes())
    for title, asked, decode in zip(titles, (100, 40), (decode_typed, decode_json), strict=True):
        decode(log)
        mine = min(processor_seconds(lambda decode=decode: decode(log)) for _ in range(pairs))  # type: ignore[misc]
        yield Figure(title, theirs / mine, asked, rate(len(log), count, mine), rate(len(log), count, theirs))


def whole_batches(log: Log, most_bytes: int) -> Log:
    """The first whole batches of a log: as many as fit, but at least one."""
    batches = index_batches(log)
    ends = batches.position + batches.size_bytes
    fitting = max(1, int(np.searchsorted(ends, most_bytes, side="right")))
    return log[: int(ends[fitting - 1])]


def engine_log(size_bytes: int, *, seeds: int = 6) -> Log:
    """Logs of random simulations, repeated one after the other, as one log without a gap.

    Offsets and epochs stand outside the CRC, so they can be moved.
    """
    batches: list[tuple[bytes, int, int]] = []
    epoch = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, seeds + 1):
            simulate("random", seed, Path(folder) / str(seed))
            path = min((Path(folder) / str(seed)).rglob("__cluster_metadata-0/*.log"))
            log = np.frombuffer(path.read_bytes(), np.uint8)
            index = index_batches(log)
            for row in np.flatnonzero(index.crc_ok).tolist():
                start, end = int(index.position[row]), int(index.position[row] + index.size_bytes[row])
                count = int(index.last_offset[row] - index.base_offset[row]) + 1
                batches.append((log[start:end].tobytes(), count, epoch + int(index.leader_epoch[row])))
            epoch = batches[-1][2]
    pieces, offset, size, row = [], 0, 0, 0
    while size < size_bytes:
        octets, count, led = batches[row % len(batches)]
        led += epoch * (row // len(batches))
        pieces.append(struct.pack(">q", offset) + octets[8:12] + struct.pack(">i", led) + octets[16:])
        offset, size, row = offset + count, size + len(octets), row + 1
    return np.frombuffer(b"".join(pieces), np.uint8)


def evenness(found: Mapping[str, Sequence[Figure | Skipped]]) -> Iterator[Figure]:
    """How each ratio on other logs compares with that on the synthetic one: no kind of log gets special treatment."""
    known = {
        figure.name.partition(": ")[2]: figure.ratio for figure in found["synthetic"] if isinstance(figure, Figure)
    }
    for label, figures_of in found.items():
        for figure in figures_of:
            name = figure.name.partition(": ")[2]
            if label != "synthetic" and isinstance(figure, Figure) and name in known:
                title = f"{label} log, of the synthetic one: {name}"
                yield Figure(title, figure.ratio / known[name], 0.8, f"{figure.ratio:.3g} ×", f"{known[name]:.3g} ×")


def largest_real_log() -> Path | None:
    """The largest log of the captures beside the project, where they were extracted."""
    root = Path(__file__).resolve().parents[1]
    found = sorted((root / ".cache").glob("corpus-*/volume/*/node-*/__cluster_metadata-0/*.log"))
    return max(found, key=lambda path: path.stat().st_size, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64, help="size of the synthetic log")
    parser.add_argument("--pairs", type=int, default=5, help="how often each pair is measured")
    parser.add_argument("--real", type=Path, help="a log written by Kafka")
    parser.add_argument("--without-java", action="store_true", help="leave kafka-dump-log out")
    options = parser.parse_args()
    logs = [("synthetic", synthetic_log(options.mib * 1024 * 1024))]
    if (real := options.real or largest_real_log()) is not None:
        logs.append(("real", np.frombuffer(real.read_bytes(), np.uint8)))
    logs.append(("random engine", engine_log(min(options.mib, 16) << 20)))
    found: dict[str, list[Figure | Skipped]] = {}
    for label, log in logs:
        found[label] = list(figures(label, log, options.pairs, with_java=not options.without_java))
        print_figures(found[label])
    print_figures(list(evenness(found)))


if __name__ == "__main__":
    main()
