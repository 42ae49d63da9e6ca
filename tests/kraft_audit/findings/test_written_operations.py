"""What a part of a log did, named by its topics, partitions and counts."""

from __future__ import annotations

from kraft_audit.findings.check_text import operations_from
from tests.builders.histories import HistoryBuilder


def test_what_records_above_an_offset_do_is_named(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12).partition("old-0", 5)
    build.add("topic_changes", topic_id="edge", topic="edge", from_offset=30, exists=True)
    for number in (0, 1):
        # Created, and given its directory by a second record.
        build.partition(f"edge-{number}", 31 + number).partition(f"edge-{number}", 33 + number)
    build.partition("old-0", 36, isr=[11]).config("TOPIC", "old", "retention.ms", "1", 37)
    created, changed, written = operations_from(build.history(), 30)
    assert '"edge" with 2 partitions' in created
    assert changed == "1 partition change"
    assert written == "1 config write"
    assert operations_from(build.history(), 38) == []


def test_many_topics_are_counted(build: HistoryBuilder) -> None:
    build.three_nodes()
    for number in range(9):
        build.add("topic_changes", topic_id=f"t{number}", topic=f"t{number}", from_offset=20 + number, exists=True)
    (text,) = operations_from(build.history(), 20)
    assert '"t0"' in text
    assert '"t8"' not in text
    assert "6 more" in text
