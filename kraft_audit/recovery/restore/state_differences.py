"""What an operator did between two states of a cluster, by operation: topics, reassignments, configs, ACLs, tokens.

Leaders, ISRs and fenced brokers are left out: controllers and brokers bring them about again by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.replay.cluster_state import ClusterState
from kraft_audit.tables.silver import (
    BROKER_CHANGES,
    CONFIG_CHANGES,
    FEATURE_CHANGES,
    PARTITION_CHANGES,
    SECURITY_CHANGES,
    TOPIC_CHANGES,
)

RowsByKey = Mapping[Any, Mapping[str, Any]]
ASSIGNMENT: Final = ("replicas", "adding_replicas", "removing_replicas")
SECURITY_NAMES: Final = {
    "ACL": "ACL",
    "CLIENT_QUOTA": "client quota",
    "SCRAM": "SCRAM credential",
    "DELEGATION_TOKEN": "delegation token",
    "PRODUCER_IDS": "producer ids",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that was done to `subject`: `change` is created, changed or deleted, of a `kind` of thing."""

    kind: str
    change: str
    subject: str

    @property
    def text(self) -> str:
        of_voters = {"created": "added", "deleted": "removed"}
        change = of_voters.get(self.change, self.change) if self.kind == "voter" else self.change
        return f"{self.kind} {self.subject} {change}"


def operations(before: ClusterState, after: ClusterState) -> list[Operation]:
    """What leads from one state to the other, sorted by kind and subject."""
    operations = set(_topics(before, after)) | set(_voters(before, after))
    topics = {row["topic"] for row in _new_or_gone(before, after, TOPIC_CHANGES.name, "topic_id")}
    for kind, subject, old, new in _keyed(before, after):
        if kind == "config" and subject.split(" ")[0] == "TOPIC" and subject.split(" ")[1] in topics:
            continue  # it came or went with its topic
        if old != new:
            operations.add(Operation(kind, _change(old, new), subject))
    return sorted(operations, key=lambda operation: (operation.kind, operation.subject, operation.change))


def _change(old: object, new: object) -> str:
    return "created" if old is None else "deleted" if new is None else "changed"


def _existing(state: ClusterState, table: str, *key: str) -> RowsByKey:
    return {tuple(row[name] for name in key): row for row in state.existing(table)}


def _new_or_gone(before: ClusterState, after: ClusterState, table: str, *key: str) -> list[Mapping[str, Any]]:
    old, new = _existing(before, table, *key), _existing(after, table, *key)
    return [(old.get(each) or new[each]) for each in sorted(old.keys() ^ new.keys())]


def _topics(before: ClusterState, after: ClusterState) -> Iterator[Operation]:
    old, new = (_existing(state, TOPIC_CHANGES.name, "topic_id") for state in (before, after))
    for key in old.keys() ^ new.keys():
        row = old.get(key) or new[key]
        yield Operation("topic", _change(old.get(key), new.get(key)), f"{row['topic']} ({row['topic_id']})")
    parts = [_existing(state, PARTITION_CHANGES.name, "topic_id", "partition") for state in (before, after)]
    for key in parts[0].keys() | parts[1].keys():
        first, last = parts[0].get(key), parts[1].get(key)
        if (key[0],) in old.keys() ^ new.keys():
            continue
        if first is None or last is None:
            known = parts[0].get(key) or parts[1][key]
            yield Operation("partition", _change(first, last), f"{known['topic']}-{known['partition']}")
        elif any(first[each] != last[each] for each in ASSIGNMENT):
            name = f"{last['topic']}-{last['partition']}"
            yield Operation("assignment", "changed", f"{name} {list(first['replicas'])} to {list(last['replicas'])}")


def _voters(before: ClusterState, after: ClusterState) -> Iterator[Operation]:
    sets = [
        {voter["voter_id"]: voter["directory_id"] for voter in (state.voter_set or {"voters": ()})["voters"]}
        for state in (before, after)
    ]
    for voter in sets[0].keys() | sets[1].keys():
        old, new = ((each[voter] or "static") if voter in each else None for each in sets)
        if old != new:
            yield Operation("voter", _change(old, new), str(voter))


def _keyed(before: ClusterState, after: ClusterState) -> Iterator[tuple[str, str, object, object]]:
    """(kind, subject, value before, value after) of configs, features, registrations and what secures a cluster."""
    for (table, key), (kind, value) in _VALUES.items():
        old, new = _existing(before, table, *key), _existing(after, table, *key)
        for each in old.keys() | new.keys():
            subject = " ".join(str(part) for part in each if part not in (None, ""))
            yield kind, subject, _value(old.get(each), value), _value(new.get(each), value)
    old, new = (_existing(state, SECURITY_CHANGES.name, "kind", "subject") for state in (before, after))
    for each in old.keys() | new.keys():
        kind, subject = each
        yield SECURITY_NAMES.get(kind, kind), subject, _value(old.get(each), "state"), _value(new.get(each), "state")


def _value(row: Mapping[str, Any] | None, name: str) -> object:
    return None if row is None else (row[name],)


_VALUES: Final = {
    (CONFIG_CHANGES.name, ("resource_type", "resource_name", "name")): ("config", "value"),
    (FEATURE_CHANGES.name, ("name",)): ("feature", "feature_level"),
    (BROKER_CHANGES.name, ("broker_id",)): ("broker", "exists"),
}
