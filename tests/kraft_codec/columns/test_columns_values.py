"""Every record type in every version with drawn values: text, typed columns and envelope equal the reference's."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft_codec.records.batch import write_batch
from kraft_codec.records.compression import Codec
from kraft_codec.records.message import write_message
from kraft_codec.records.record import write_control_key, write_metadata_value
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect
from tests.builders.message_values import structs

DATA_CASES = [(message, version) for message in METADATA_RECORDS for version in range(message.versions.last + 1)]
CONTROL_CASES = [(dialect, control) for dialect, types in CONTROL_TYPES.items() for control in types.values()]


def data_batch(values: list[bytes], codec: Codec = Codec.NONE) -> bytes:
    return write_batch(
        base_offset=7, leader_epoch=3, timestamp_ms=5, records=[(None, value) for value in values], codec=codec
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "version"), DATA_CASES, ids=[f"{message.name}-v{version}" for message, version in DATA_CASES]
)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_data_records(agree, message, version, data) -> None:
    drawn = data.draw(st.lists(structs(message.fields, version), min_size=1, max_size=4))
    values = [write_metadata_value(message.name, version, fields) for fields in drawn]
    seen = agree(data_batch(values))
    assert (seen.records, seen.undecodable, seen.quarantined) == (len(values), 0, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dialect", "control"), CONTROL_CASES, ids=[f"{dialect}-{control.name}" for dialect, control in CONTROL_CASES]
)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_control_records(agree, dialect: Dialect, control, data) -> None:
    drawn = data.draw(st.lists(structs(control.message.fields, control.version), min_size=1, max_size=4))
    values = [write_message(control.message, control.version, fields) for fields in drawn]
    key = write_control_key(control.number)
    batch = write_batch(
        base_offset=0,
        leader_epoch=1,
        timestamp_ms=1,
        records=[(key, value + data.draw(st.binary(max_size=2))) for value in values],
        is_control=True,
    )
    seen = agree(batch, dialect=dialect)
    assert (seen.records, seen.undecodable, seen.quarantined) == (len(values), 0, ())


@pytest.mark.parametrize("codec", list(Codec))
def test_all_types_and_versions_in_one_compressed_batch(agree, codec: Codec) -> None:
    values = [write_metadata_value(message.name, version, {}) for message, version in DATA_CASES]
    seen = agree(data_batch(values, codec) + data_batch(values))
    assert (seen.batches, seen.records, seen.undecodable) == (2, 2 * len(values), 0)


def test_lists_that_outgrow_the_first_guess_of_the_text_buffer(agree) -> None:
    """A few characters a byte are foreseen; eleven of four bytes throughout are not, nor are escapes of six of one."""
    isr = list(range(-(2**31), -(2**31) + 20_000))
    values = [write_metadata_value("PartitionChangeRecord", 2, {"isr": isr})] * 3
    values.append(write_metadata_value("TopicRecord", 0, {"name": "\x01" * 32_767}))
    values.append(write_metadata_value("AbortTransactionRecord", 0, {"reason": '"' * 32_767}))
    assert agree(data_batch(values * 4)).records == 20


def test_a_tagged_field_that_stands_in_the_middle_of_the_schema(agree) -> None:
    """LeaderRecoveryState is written last and printed between Leader and LeaderEpoch."""
    fields = {"replicas": list(range(50)), "leaderRecoveryState": 1, "eligibleLeaderReplicas": [], "lastKnownElr": [7]}
    assert agree(data_batch([write_metadata_value("PartitionRecord", 2, fields)])).records == 1
