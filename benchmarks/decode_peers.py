"""Who decodes the same bytes: Kafka's own tool, two Python clients, and the same kernels in C."""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kraft_codec.columns import batches, buffers
from kraft_codec.columns.buffers import address
from kraft_codec.kernels.library import has_crc32_instruction

ROOT = Path(__file__).resolve().parents[1]
KAFKA_RELEASE = "4.3.1"
Log = npt.NDArray[np.uint8]
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kraft-audit</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{release}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
_C_ARGUMENTS = {"index_batches": 7, "index_records": 11, "group_rows": 5, "fill_columns": 9, "verify": 6}


class PeerError(Exception):
    """A peer that is not to be had here; the text says why."""


def kafka_classpath() -> str:
    """Kafka's tools with all that they need, through Maven; kept in .cache."""
    if shutil.which("java") is None:
        raise PeerError("no java on the PATH")
    folder = ROOT / ".cache" / f"kafka-tools-{KAFKA_RELEASE}"
    classpath_file = folder / "classpath"
    if classpath_file.exists() and all(Path(jar).exists() for jar in classpath_file.read_text().split(":")):
        return classpath_file.read_text()
    if shutil.which("mvn") is None:
        raise PeerError("no mvn on the PATH to fetch Kafka's tools with")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM.format(release=KAFKA_RELEASE))
    command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:build-classpath"]
    finished = subprocess.run(
        [*command, f"-Dmdep.outputFile={classpath_file}"], capture_output=True, text=True, check=False, timeout=600
    )
    if finished.returncode:
        raise PeerError(f"Maven could not fetch kafka-tools {KAFKA_RELEASE}")
    return classpath_file.read_text()


def kafka_dump_log_seconds(log: bytes, first_batch: bytes) -> float:
    """The processor time that kafka-dump-log takes for a log, net of what its first batch alone takes: the JVM's start.

    On one core, as ours is: what compiles and collects in other threads counts too.
    """
    return max(_dump(log) - _dump(first_batch), 1e-3)


def _dump(log: bytes) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{0:020}.log"
        path.write_bytes(log)
        command = ["java", "-cp", kafka_classpath(), "org.apache.kafka.tools.DumpLogSegments"]
        command += ["--cluster-metadata-decoder", "--files", str(path)]

        def run() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            with (Path(folder) / "out").open("wb") as out, on_one_core():
                subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        return min(run() for _ in range(3))


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keeps this process and those that it starts to one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def kafka_python_framing(log: bytes) -> Callable[[], int]:
    """Reads every record's envelope by kafka-python; nothing of a value is decoded."""
    try:
        from kafka.record import MemoryRecords
    except ImportError:
        raise PeerError("kafka-python is not installed") from None

    def run() -> int:
        count = 0
        records = MemoryRecords(log)
        while (batch := records.next_batch()) is not None:
            for _ in batch:
                count += 1
        return count

    return run


def aiokafka_framing(log: bytes) -> Callable[[], int]:
    """The same by aiokafka, whose record parser is compiled."""
    try:
        from aiokafka.record._crecords import MemoryRecords
    except ImportError:
        raise PeerError("aiokafka with its compiled parser is not installed") from None

    def run() -> int:
        count = 0
        records = MemoryRecords(log)
        while (batch := records.next_batch()) is not None:
            for _ in batch:
                count += 1
        return count

    return run


@functools.cache
def c_kernels() -> Mapping[str, Callable[..., int]]:
    """decode_kernel.c, compiled here, with the same interface as the kernels of the decoder."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise PeerError("no C compiler on the PATH")
    if not has_crc32_instruction():
        raise PeerError("this processor has no crc32 instruction, which the C kernel uses")
    folder = ROOT / ".cache" / "decode-kernel"
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / f"decode_kernel{sysconfig.get_config_var('SHLIB_SUFFIX')}"
    source = Path(__file__).with_name("decode_kernel.c")
    # Not -march=native: on a processor newer than gcc 12 its CRC loop, the same instructions, took twice as long.
    flags = ["-O3", "-msse4.2", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(built), str(source)], check=True)
    library = ctypes.CDLL(str(built))
    kernels = {}
    for name, count in _C_ARGUMENTS.items():
        function = getattr(library, name)
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_int64] * count
        kernels[name] = function
    return kernels


def c_verify(log: Log) -> Callable[[], tuple[int, int]]:
    """Framing, CRC and continuity of a log in C alone: how many batches there are, and how many do not fit."""
    verify, tables = c_kernels()["verify"], batches.crc_tables()

    def run() -> tuple[int, int]:
        state = np.array([-1, -1, 0, 0, 0], np.int64)
        verify(address(log), 0, len(log), 1, address(tables), address(state))
        return int(state[2]), int(state[3])

    return run


@contextmanager
def in_place_of_ours(kernels: Mapping[str, Callable[..., int]]) -> Iterator[None]:
    """Lets kraft_codec.columns run on other kernels: all around them stays the same."""
    ours = buffers.kernels  # type: ignore[attr-defined]
    buffers.kernels = lambda: kernels  # type: ignore[attr-defined]
    try:
        yield
    finally:
        buffers.kernels = ours  # type: ignore[attr-defined]
