"""Bytes that change after they were indexed: refused or read within bounds, never beyond the buffer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kraft_codec import columns
from kraft_codec.columns import text
from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_metadata_value
from kraft_codec.schemas import CONTROL_TYPES, METADATA_BY_API_KEY
from tests.builders.guarded_memory import guarded_outputs
from tests.fuzz.decoder import TELLING

CHANGES = 12


@pytest.fixture(scope="module")
def every_type(small_corpus: Path) -> bytes:
    """All record types in all versions, written by Kafka's own serializers."""
    return (
        small_corpus / "crafted" / "all-records-all-versions" / "__cluster_metadata-0" / "00000000000000000000.log"
    ).read_bytes()


@pytest.mark.parametrize("seed", range(3))
def test_what_was_indexed_and_has_changed_is_refused_or_read_within_bounds(every_type: bytes, seed: int) -> None:
    """Buffers end where a forbidden page begins: an access after it, to read or to fill, would end the process."""
    chance = random.Random(seed)  # noqa: S311
    refused = read = 0
    for turn in range(CHANGES):
        with guarded_outputs() as guards:
            log = guards.memory(len(every_type))
            log[:] = np.frombuffer(every_type, np.uint8)
            records = columns.index_records(log, columns.index_batches(log))
            for position, length in zip(records.value_position.tolist(), records.value_length.tolist(), strict=True):
                at = position + chance.randrange(length) if length > 0 else position
                records.buffer[at : position + length if turn % 2 else at + 1] = chance.choice(TELLING.tolist())
            works = [lambda records=records: columns.json_text(records)]
            works += [
                lambda records=records, message=message: columns.typed_columns(records, message)
                for message in records.messages()
            ]
            for work in works:
                if (problem := _problem(work)) is None:
                    read += 1
                else:
                    assert "no longer what was indexed" in problem
                    refused += 1
    assert refused > CHANGES
    assert read > CHANGES


def _problem(work: Callable[[], object]) -> str | None:
    try:
        work()
    except ValueError as problem:
        return str(problem)
    return None


def test_each_byte_cut_after_the_index(every_type: bytes) -> None:
    """Lengths say less than what the schema needs: each record alone, its value cut at every byte."""
    log = np.frombuffer(every_type, np.uint8).copy()
    records = columns.index_records(log, columns.index_batches(log))
    whole = records.value_length.copy()
    refused = {"text": 0, "typed": 0}
    for part in range(1, 8):
        records.value_length[:] = whole * part // 8
        for message in records.messages():
            try:
                columns.typed_columns(records, message)
            except ValueError:
                refused["typed"] += 1
        try:
            columns.json_text(records)
        except ValueError:
            refused["text"] += 1
    assert refused["text"] == 7
    assert refused["typed"] > 7 * len(records.messages()) // 2


def test_the_smallest_number_and_every_escape(agree) -> None:
    """JSON's short escapes, a quote, the highest plain control, and the int64 without a positive counterpart."""
    text = "".join(map(chr, range(0x20))) + '"\\/\x7f'
    values = [
        write_metadata_value("TopicRecord", 0, {"name": text}),
        write_metadata_value("RegisterBrokerRecord", 0, {"brokerEpoch": -(2**63)}),
        write_metadata_value("RegisterBrokerRecord", 0, {"brokerEpoch": 2**63 - 1}),
    ]
    records = [(None, value) for value in values]
    seen = agree(write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1, records=records))
    assert (seen.records, seen.quarantined) == (3, ())


def test_more_text_than_a_column_holds_is_a_limit(every_type: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gibibytes, here some kilobytes: the record at which it is full is named."""
    records = columns.index_records(every_type, columns.index_batches(every_type))
    monkeypatch.setattr(text, "TEXT_BYTES_MAX", 600)
    with pytest.raises(CodecError) as problem:
        columns.json_text(records)
    assert problem.value.reason is Reason.LIMIT
    assert problem.value.position in records.value_position.tolist()


def test_a_record_type_of_another_dialect_has_no_rows(every_type: bytes) -> None:
    records = columns.index_records(every_type, columns.index_batches(every_type))
    here = {id(control_type.message) for control_type in CONTROL_TYPES[records.dialect].values()}
    others = [
        control_type.message
        for types in CONTROL_TYPES.values()
        for control_type in types.values()
        if id(control_type.message) not in here
    ]
    assert others
    assert all(not len(records.rows_of(message)) for message in others)


def test_a_type_is_known_by_its_dialect(every_type: bytes) -> None:
    """AddVoter is KIP-642's and KIP-856's alone; a number that no dialect gave has no schema."""
    batches = columns.index_batches(every_type)
    for dialect, types in CONTROL_TYPES.items():
        records = columns.index_records(every_type, batches, dialect=dialect)
        for number in range(12):
            expected = types[number].message if number in types else None
            assert records.message(is_control=True, api_key=number) is expected
        assert records.message(is_control=False, api_key=2) is METADATA_BY_API_KEY[2]
        assert records.message(is_control=False, api_key=200) is None
