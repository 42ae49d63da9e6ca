"""No kernel touches a byte outside of what it was given: input and output memory end where a forbidden page begins."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CASES = int(os.environ.get("KRAFT_AUDIT_GUARD_CASES", "300"))

# It runs in a process of its own: a stray access ends that with a signal. Every array that the decoder makes, and every
# buffer that it reads, is put flush against a page that may not be touched; a second run puts them flush behind one.
PROGRAM = """
import ctypes, mmap, random, struct, sys
import google_crc32c
import numpy as np
import pyarrow as pa
from kraft_codec import columns, columns_batches, columns_records, columns_secrets, columns_text, columns_typed
from kraft_codec.redaction import Redactor

log = bytes.fromhex(sys.stdin.read())
cases, at_end = int(sys.argv[1]), sys.argv[2] == "end"
page = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(size):
    room = -(-size // page) * page
    memory = mmap.mmap(-1, room + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(start, page, 0) == 0
    assert libc.mprotect(start + page + room, page, 0) == 0
    bytes_ = np.frombuffer(memory, np.uint8)
    return bytes_[page + room - size : page + room] if at_end else bytes_[page : page + size]


class GuardedNumpy:
    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, shape, dtype=float):
        count = int(np.prod(shape))
        kind = np.dtype(dtype)
        return guarded(count * kind.itemsize).view(kind).reshape(shape)

    zeros = empty  # fresh pages are zero


class GuardedPieces:
    def __init__(self, sizes_bytes):
        self._pieces = [guarded(size_bytes) for size_bytes in sizes_bytes]
        self.table = np.array([piece.__array_interface__["data"][0] for piece in self._pieces], np.int64)

    def array(self, number, kind, count):
        return self._pieces[number][: count * np.dtype(kind).itemsize].view(kind)

    def buffer(self, number, size_bytes):
        return pa.py_buffer(self._pieces[number]).slice(0, size_bytes)


for module in (columns_batches, columns_records, columns_secrets, columns_text, columns_typed):
    module.np = GuardedNumpy()
for module in (columns_batches, columns_records, columns_typed):
    module.Pieces = GuardedPieces


def right_crcs(log):
    position = 0
    while position + 61 <= len(log):
        end = position + 12 + struct.unpack_from(">i", log, position + 8)[0]
        if not position + 61 <= end <= len(log):
            break
        struct.pack_into(">I", log, position + 17, google_crc32c.value(bytes(log[position + 21 : end])))
        position = end
    return log


def decode(content):
    buffer = guarded(len(content))
    buffer[:] = np.frombuffer(bytes(content), np.uint8)
    batches = columns.index_batches(buffer)
    records = columns.index_records(buffer, batches, rows=np.arange(len(batches)))
    columns.json_text(records).validate(full=True)
    for is_control, api_key in set(zip(records.is_control.tolist(), records.api_key.tolist())):
        message = records.message(is_control=is_control, api_key=api_key)
        if message is not None:
            columns.typed_columns(records, message).validate(full=True)
    if records.buffer.flags.writeable:
        columns.redact(records, Redactor(bytes(32)))
    return len(records)


seeded = random.Random(7)
found = decode(log)
for case in range(cases):
    changed = bytearray(log)
    for _ in range(seeded.randint(1, 4)):
        changed[seeded.randrange(len(changed))] = seeded.choice([0, 1, 0x7F, 0x80, 0xFF, seeded.randrange(256)])
    if seeded.randrange(2):
        del changed[seeded.randrange(len(changed)) :]
    found += decode(right_crcs(changed))
print(found)
"""


@pytest.mark.slow
@pytest.mark.parametrize("side", ["end", "start"])
def test_nothing_is_touched_beyond_a_buffer(small_log: bytes, project_root: Path, side: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(CASES), side],
        input=small_log.hex(),
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        cwd=project_root,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert int(finished.stdout) > CASES
