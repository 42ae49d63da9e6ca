"""Values that no Kafka ever wrote, printed by kafka-dump-log itself and by us: the same lines.

Needs Java and Kafka's jars: their class path in KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from kraft_codec.records.batch import Batch, read_batches, read_records, write_batch
from kraft_codec.records.compression import Codec
from kraft_codec.text.dump_text import BytesSource, dump_lines

pytestmark = pytest.mark.kafka


def damaged(value: bytes, chance: random.Random) -> bytes | None:
    changed = bytearray(value)
    match chance.randrange(8):
        case 0:
            return None
        case 1:
            return bytes(changed[: chance.randrange(len(changed) + 1)])
        case 2:
            return bytes(changed) + chance.randbytes(chance.randrange(1, 4))
        case _:
            for _ in range(chance.choice((1, 1, 2))):
                changed[chance.randrange(len(changed))] = chance.choice(
                    (0, 1, 2, 4, 0x7F, 0x80, 0xFF, chance.randrange(256))
                )
            return bytes(changed)


def damaged_log(batches: list[list[bytes]], chance: random.Random) -> bytes:
    """A few batches of damaged values, whose framing and CRC are right, so that the tool reads on."""
    log = b""
    offset = 0
    for values in chance.sample(batches, 3):
        records = [(None, damaged(value, chance)) for value in values]
        codec = chance.choice(list(Codec))
        log += write_batch(base_offset=offset, leader_epoch=1, timestamp_ms=5, records=records, codec=codec)
        offset += len(records)
    return log


def test_damaged_values_print_as_the_tool_prints_them(kafka_classpath: str, small_corpus: Path, tmp_path: Path) -> None:
    original = (
        small_corpus / "crafted" / "all-records-all-versions" / "__cluster_metadata-0" / "00000000000000000000.log"
    )
    data = original.read_bytes()
    batches = [
        [record.value or b"" for record in read_records(data, found.header)]
        for found in read_batches(data)
        if isinstance(found, Batch)
    ]
    chance = random.Random(20261121)  # noqa: S311
    paths = []
    for number in range(200):
        path = tmp_path / str(number) / "00000000000000000000.log"
        path.parent.mkdir()
        path.write_bytes(damaged_log(batches, chance))
        paths.append(str(path))
    tool = ["java", "-Dfile.encoding=UTF-8", "-cp", kafka_classpath, "org.apache.kafka.tools.DumpLogSegments"]
    options = ["--cluster-metadata-decoder", "--deep-iteration", "--files", ",".join(paths)]
    utf_8 = os.environ | {"LC_ALL": "C.UTF-8"}
    run = subprocess.run([*tool, *options], capture_output=True, encoding="utf-8", env=utf_8, timeout=200, check=True)
    ours = [line for path in paths for line in dump_lines(BytesSource(Path(path).read_bytes()), path)]
    theirs = run.stdout.removesuffix("\n").split("\n")
    assert sum("Error at" in line for line in theirs) > 300
    assert sum('"type":' in line for line in theirs) > 300
    assert [comparable(line) for line in ours] == [comparable(line) for line in theirs]


def comparable(line: str) -> str:
    """Java releases differ in the last digits of odd doubles (quotas)."""
    return re.sub(r'"value":[-0-9.E]+', '"value":0.0', line) if "CLIENT_QUOTA_RECORD" in line else line
