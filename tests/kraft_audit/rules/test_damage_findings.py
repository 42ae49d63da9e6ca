"""Each byte edit of a real log (crafted/damaged/scenario.json says which) raises exactly the rule about that damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.captured_histories import findings_of
from tests.builders.facts import facts

RULE_OF_EDIT = {
    "crc-field-flip-last": {"KQ008"},
    "crc-flip-last-batch": {"KQ008"},
    "crc-flip-middle-batch": {"KQ008"},
    "duplicate-last-batch": {"KQ007"},
    "garbage-tail": {"KQ008"},
    "huge-length-tail": {"KQ008"},
    "magic-1-last-batch": {"KQ008"},
    "magic-18-last-batch": {"KQ008"},
    "negative-length-tail": {"KQ008"},
    "offset-gap": {"KQ007"},
    "torn-big-batch-half": {"KQ009"},
    "torn-header-only": {"KQ009"},
    "torn-mid-header": {"KQ009"},
    "torn-mid-length-field": {"KQ009"},
    "torn-mid-records": {"KQ009"},
    "torn-one-byte-short": {"KQ009"},
    "torn-then-zeros": {"KQ008", "KQ009"},  # the zeros complete the torn batch's length, so its CRC is wrong
    "zero-filled-tail-1MiB": {"KQ009"},
    "zero-filled-tail-4096": {"KQ009"},
    "zero-filled-tail-7": {"KQ009"},
}


@pytest.mark.slow
@pytest.mark.parametrize("edit", sorted(RULE_OF_EDIT))
def test_each_edit_raises_its_rule(captured_logs: Path, edit: str) -> None:
    findings = findings_of(captured_logs / "crafted" / "damaged" / edit, None)
    about_bytes = {f.rule for f in findings if f.status == "raised" and f.rule.startswith("KQ")}
    assert about_bytes == RULE_OF_EDIT[edit]


def test_what_kafka_would_lose_after_a_flipped_bit(small_corpus: Path) -> None:
    findings = findings_of(small_corpus / "crafted" / "damaged" / "crc-flip-middle-batch", None)
    (finding,) = [f for f in findings if f.rule == "KQ008"]
    assert facts(finding.summary) == {"BAD_CRC", "692", "1457", "1672"}
    assert finding.evidence[0].position == 82165
