"""Configs and feature levels (ConfigurationsDelta, FeaturesDelta, FeatureControlManager of Kafka 4.3.0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from kraft_audit.replay.history import Change, History
from kraft_audit.replay.tables import CONFIG_CHANGES, FEATURE_CHANGES
from kraft_codec.contract import Table

RESOURCE_TYPES: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
KRAFT_VERSION: Final = "kraft.version"


class ConfigHistory(History):
    """`config_changes`."""

    table: ClassVar[Table] = CONFIG_CHANGES
    messages: ClassVar[tuple[str, ...]] = ("ConfigRecord", "TopicRecord", "RemoveTopicRecord")

    def __init__(self, *, cluster_id: str, plan: int, emit_from_offset: int) -> None:
        super().__init__(cluster_id=cluster_id, plan=plan, emit_from_offset=emit_from_offset)
        self._topic_names: dict[bytes, str] = {}
        self._keys_of_topic: dict[str, set[str]] = {}

    def reset(self) -> None:
        super().reset()
        self._topic_names.clear()
        self._keys_of_topic.clear()

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[Change]:
        """A null value deletes; a removed topic takes its configs along."""
        if name == "TopicRecord":
            self._topic_names[row["topic_id"]] = row["name"]
        elif name == "RemoveTopicRecord":
            topic = self._topic_names.pop(row["topic_id"], "")
            for key in sorted(self._keys_of_topic.pop(topic, ())):
                subject = ("TOPIC", topic, key)
                yield Change(subject, "topic_removed", None, {**self.state[subject], "value": None})
        else:
            yield from self._written(row)

    def _written(self, row: Mapping[str, Any]) -> Iterator[Change]:
        type_name = RESOURCE_TYPES.get(row["resource_type"], str(row["resource_type"]))
        subject = (type_name, row["resource_name"], row["name"])
        state = {
            "resource_type": type_name,
            "resource_name": row["resource_name"],
            "name": row["name"],
            "value": row["value"],
        }
        if type_name == "TOPIC":
            keys = self._keys_of_topic.setdefault(row["resource_name"], set())
            if row["value"] is None:
                keys.discard(row["name"])
            else:
                keys.add(row["name"])
        if row["value"] is None:
            yield Change(subject, "deleted", None, state)
        else:
            yield Change(subject, "set", state)


class FeatureHistory(History):
    """`feature_changes`; kraft.version comes from its control record and never from a FeatureLevelRecord."""

    table: ClassVar[Table] = FEATURE_CHANGES
    messages: ClassVar[tuple[str, ...]] = ("FeatureLevelRecord", "KRaftVersionRecord")

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[Change]:
        """Level 0 removes a feature."""
        if name == "KRaftVersionRecord":
            feature, level = KRAFT_VERSION, row["kraft_version"]
            if self.state.get(feature, {}).get("feature_level") == level:
                return  # a leader that updates its own endpoints writes it again
        else:
            feature, level = row["name"], row["feature_level"]
            if feature == KRAFT_VERSION:
                return
        state = {"name": feature, "feature_level": level}
        yield Change(feature, "set" if level else "removed", state if level else None, state)
