"""The numbers that kernels and their callers share: columns have the place that their names say."""

from __future__ import annotations

import pytest

from kraft_codec.columns.batches import BATCH_COLUMNS
from kraft_codec.columns.records import RECORD_COLUMNS
from kraft_codec.columns.typed import ENVELOPE
from kraft_codec.kernels import codes


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("BATCH", BATCH_COLUMNS),
        ("RECORD", RECORD_COLUMNS),
        ("ENVELOPE", [field.name.replace("record_version", "version") for field in ENVELOPE]),
    ],
)
def test_columns_are_filled_in_the_order_of_their_names(prefix: str, names: tuple[str, ...]) -> None:
    assert [getattr(codes, f"{prefix}_{name.upper()}") for name in names] == list(range(len(names)))


def test_every_status_but_the_first_is_a_reason() -> None:
    assert [codes.status_of(reason) for reason in codes.REASONS if reason is not None] == [
        *range(1, len(codes.REASONS))
    ]
    assert codes.REASONS[codes.OK] is None
