"""Topics created and removed (ReplicationControlManager, TopicsDelta of Kafka 4.3.0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from kraft_audit.replay.history import Change, History
from kraft_audit.replay.tables import TOPIC_CHANGES
from kraft_codec.contract import Table
from kraft_codec.uuids import uuid_text


class TopicHistory(History):
    """`topic_changes`."""

    table: ClassVar[Table] = TOPIC_CHANGES
    messages: ClassVar[tuple[str, ...]] = ("TopicRecord", "RemoveTopicRecord")

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[Change]:
        """A topic is its id: the same name created again is another one."""
        topic_id = uuid_text(row["topic_id"])
        if name == "TopicRecord":
            yield Change(topic_id, "created", {"topic_id": topic_id, "topic": row["name"]})
        elif topic_id in self.state:
            yield Change(topic_id, "removed", None, self.state[topic_id])
        else:
            self.problems.append((row["offset"], "unknown_topic"))
