"""No kernel touches a byte outside of what it was given: input and output memory end where a forbidden page begins."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CASES = int(os.environ.get("KRAFT_AUDIT_GUARD_CASES", "150"))

# It runs in a process of its own: a stray access ends that with a signal. Every array that the decoder makes, and every
# buffer that it reads, is put flush against a page that may not be touched; a second run puts them flush after one.
PROGRAM = """
import random, struct, sys
import google_crc32c
import numpy as np
from kraft_codec import columns
from kraft_codec.records.redaction import Redactor
from tests.builders.guarded_memory import guarded_outputs

log = bytes.fromhex(sys.stdin.read())
cases, at_end = int(sys.argv[1]), sys.argv[2] == "end"


def right_crcs(log):
    position = 0
    while position + 61 <= len(log):
        end = position + 12 + struct.unpack_from(">i", log, position + 8)[0]
        if not position + 61 <= end <= len(log):
            break
        struct.pack_into(">I", log, position + 17, google_crc32c.value(bytes(log[position + 21 : end])))
        position = end
    return log


def decode(content, guards):
    buffer = guards.memory(len(content))
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
    guards.check()
    return len(records)


seeded = random.Random(7)
with guarded_outputs(at_end=at_end) as guards:
    found = decode(log, guards)
    for case in range(cases):
        changed = bytearray(log)
        for _ in range(seeded.randint(1, 4)):
            changed[seeded.randrange(len(changed))] = seeded.choice([0, 1, 0x7F, 0x80, 0xFF, seeded.randrange(256)])
        if seeded.randrange(2):
            del changed[seeded.randrange(len(changed)) :]
        found += decode(right_crcs(changed), guards)
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
