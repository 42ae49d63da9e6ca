"""Admin calls of several users for a real Kafka, and what shows afterwards whose change is whose.

Each call that changes something leaves a mark that no other call leaves (a topic's name, a config's value, an ACL's
principal), so that the metadata log alone says which call it was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

SUPER_USER: Final = "root"
USERS: Final = (SUPER_USER, "alice", "bob", "carol", "dave")
RIGHTS: Final = (
    # Topics by a right on the cluster alone: Kafka's log then names no topic.
    ("alice", "CLUSTER", "LITERAL", "kafka-cluster", "ALL"),
    ("bob", "TOPIC", "PREFIXED", "b-", "ALL"),
    ("carol", "TOPIC", "LITERAL", "*", "ALL"),
    ("carol", "CLUSTER", "LITERAL", "kafka-cluster", "ALTER"),
    ("dave", "TOPIC", "LITERAL", "*", "ALL"),
    ("dave", "CLUSTER", "LITERAL", "kafka-cluster", "ALTER_CONFIGS"),
)
SHARED_TOPIC: Final = "b-shared"
OF_TOPICS: Final = ("create", "create", "config", "config", "config", "delete", "partitions", "fails")
OF_CLUSTER: Final = {
    "alice": ("create", "delete", "acl", "acl", "no-acl", "quota", "broker"),
    "bob": (),
    "carol": ("acl", "acl", "no-acl"),
    "dave": ("quota", "broker"),
    SUPER_USER: ("delete", "acl", "acl", "no-acl", "quota", "broker"),
}
"""Calls whose subject Kafka's log does not name, by who may make them; in each group they are one user's."""
_SIZES: Final = (1, 4, 12, 16)


@dataclass(frozen=True, slots=True)
class AdminCall:
    """A call, as `AdminCalls.java` reads it. `mark`: what its change alone holds; "" where it changes nothing."""

    user: str
    words: tuple[str, ...]
    mark: str

    @property
    def line(self) -> str:
        return "\t".join((self.user, *self.words))


@dataclass(slots=True)
class AdminDay:
    """Draws groups of calls that are made at the same time."""

    seed: int
    partitions: dict[str, int] = field(default_factory=dict)
    acls: list[str] = field(default_factory=list)
    number: int = 0
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311

    def groups(self, call_count: int, contended: int) -> Iterator[list[AdminCall]]:
        """So many calls. In `contended` pairs, two users do at one time what Kafka's log cannot tell apart."""
        for user, *right in RIGHTS:
            yield [AdminCall(SUPER_USER, ("create-acl", f"User:{user}", *right), f"acl User:{user} {right[2]}")]
        yield [AdminCall(SUPER_USER, ("create-topic", SHARED_TOPIC), f"topic {SHARED_TOPIC}")]
        left = call_count - len(RIGHTS) - 1
        pairs_at = {left * (number + 1) // (contended + 1) for number in range(contended)}
        while left > 0:
            pair_now = {at for at in pairs_at if at >= left}
            pairs_at -= pair_now
            group = self._pair() if pair_now else self._group()
            yield group[:left]
            left -= len(group)

    def _group(self) -> list[AdminCall]:
        owner = self.random.choice(USERS)
        size = self.random.choice(_SIZES)
        old_topics = self.random.sample(sorted(self.partitions), min(size, len(self.partitions)))
        group = []
        for _ in range(size):
            user = self.random.choice(USERS)
            if user == owner and OF_CLUSTER[user] and self.random.random() < 0.7:
                kind = self.random.choice(OF_CLUSTER[user])
            elif user == "alice":
                continue
            else:
                kind = self.random.choice(OF_TOPICS)
            if kind == "delete" and user == SUPER_USER != owner:
                kind = "config"
            group.append(self._call(user, kind, old_topics))
        return group or [self._topic("carol")]

    def _pair(self) -> list[AdminCall]:
        users = self.random.sample((SUPER_USER, "carol"), 2)
        if self.random.random() < 0.5:
            return [self._config(user, SHARED_TOPIC) for user in users]
        return [self._acl(user) for user in users]

    def _call(self, user: str, kind: str, old_topics: list[str]) -> AdminCall:
        mine = [name for name in old_topics if user != "bob" or name.startswith("b-")]
        if kind == "acl" or (kind == "no-acl" and not self.acls):
            return self._acl(user)
        if kind == "no-acl":
            principal = self.acls.pop(0)
            return AdminCall(user, ("delete-acl", principal, "TOPIC", "LITERAL", "t", "READ"), f"no acl {principal}")
        if kind == "quota":
            name = f"q{self._next()}"
            return AdminCall(user, ("set-quota", name, "1000"), f"quota {name}")
        if kind == "broker":
            value = str(100_000 + self._next())
            words = ("set-config", "BROKER", self.random.choice(("", "2")), "log.cleaner.backoff.ms", value)
            return AdminCall(user, words, f"config {value}")
        if kind == "create" or not mine:
            return self._topic(user)
        topic = mine[0]
        old_topics.remove(topic)
        if kind == "delete":
            del self.partitions[topic]
            return AdminCall(user, ("delete-topic", topic), f"no topic {topic}")
        if kind == "partitions":
            self.partitions[topic] += 1
            count = str(self.partitions[topic])
            return AdminCall(user, ("add-partitions", topic, count), f"partition {topic} {int(count) - 1}")
        if kind == "fails":
            return AdminCall(user, ("create-topic", topic), "")
        return self._config(user, topic)

    def _topic(self, user: str) -> AdminCall:
        name = f"{user[0]}-{self._next()}"
        self.partitions[name] = 1
        return AdminCall(user, ("create-topic", name), f"topic {name}")

    def _config(self, user: str, topic: str) -> AdminCall:
        value = str(100_000 + self._next())
        return AdminCall(user, ("set-config", "TOPIC", topic, "retention.ms", value), f"config {value}")

    def _acl(self, user: str) -> AdminCall:
        principal = f"User:p{self._next()}"
        self.acls.append(principal)
        return AdminCall(user, ("create-acl", principal, "TOPIC", "LITERAL", "t", "READ"), f"acl {principal} t")

    def _next(self) -> int:
        self.number += 1
        return self.number


def mark_of(kind: str, subject: str, text: str) -> str:
    """The mark of the call that made a change, as the change shows it; "" for what no call makes."""
    if kind == "topic":
        return f"topic {subject}" if text.endswith(" created") else f"no topic {subject}"
    if kind == "partition":
        return "partition {} {}".format(*subject.rsplit("-", 1))
    if kind == "config":
        return f"config {text.rpartition(' = ')[2]}"
    if kind == "acl":
        words = text.split()
        return f"no acl {words[-2]}" if words[-1] == "removed" else f"acl {words[-2]} {words[-4].replace('-*', '-')}"
    return f"quota {text.removeprefix('quota of user ').partition(':')[0]}" if kind == "quota" else ""
