"""Who made a change: as clients know that made the calls, on a real cluster; never another user, whatever the order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import kraft_audit
from kraft_audit.findings.admin_changes import _SECURITY, CREATE_TOPIC, TOPIC_CONFIG, AdminChange
from kraft_audit.findings.authorizer_log import AllowedRequest, read_authorizer_logs
from kraft_audit.findings.change_authors import (
    Author,
    Confidence,
    author_text,
    authors_of,
    other_zone_minutes,
)
from kraft_audit.rules.columns.log_batches import BatchColumns
from tests.builders.admin_calls import USERS, mark_of
from tests.builders.recorded_changes import AUTHORIZER_LOG, LOG_DIR, made_by

CREATE_ACL = _SECURITY["ACL", True]


def test_a_real_cluster_whose_users_often_do_the_same_at_one_time() -> None:
    (cluster,) = kraft_audit.open(str(LOG_DIR))
    changes = cluster.changes(read_authorizer_logs([AUTHORIZER_LOG]))
    authors = {mark_of(each.change.kind, each.change.subject, each.change.text): each.author for each in changes}
    made = made_by()
    assert len(made) > 900
    assert made.keys() <= authors.keys()
    confidence: Counter[str] = Counter()
    for mark, user in made.items():
        author = authors[mark]
        assert author is not None
        assert user in author.candidates
        assert author.principal in (None, user)
        confidence[author.confidence] += 1
    assert confidence["high"] > 400
    assert 10 < confidence["undecided"] < 20, "of 300 changes that were made in pairs"
    assert confidence["none"] == 0
    of_kafka = [author for mark, author in authors.items() if mark not in made]
    assert of_kafka
    assert {None if author is None else author.confidence for author in of_kafka} == {Confidence.NONE}


def line(at: int, user: str, request: str, name: str | None = None, operation: str = "ALTER") -> AllowedRequest:
    kind = "Cluster" if name is None else "Topic"
    return AllowedRequest(at, 1, f"User:{user}", "10.0.0.1", request, operation, kind, name or "kafka-cluster")


def acl(offset: int, at: int) -> AdminChange:
    return AdminChange(offset, 1, at, "acl", str(offset), "ACL", CREATE_ACL)


def config(offset: int, at: int, topic: str) -> AdminChange:
    return AdminChange(offset, 1, at, "config", topic, "config", TOPIC_CONFIG, ("Topic", topic))


def batches(*of: tuple[int, int]) -> BatchColumns:
    """Batches by (base offset, time), each up to the next."""
    base = np.array([offset for offset, _ in of], np.int64)
    last = np.append(base[1:] - 1, base[-1] + 100)
    ones = np.ones(len(of), np.int64)
    times = np.array([at for _, at in of], np.int64)
    return BatchColumns(
        row=np.arange(len(of)), base_offset=base, last_offset=last, leader_epoch=ones, crc=ones, timestamp_ms=times,
        is_control=ones.astype(bool),
    )  # fmt: skip


def test_the_name_of_the_resource_decides_among_users_of_one_moment() -> None:
    lines = [line(1000, user, "IncrementalAlterConfigs", topic, "ALTER_CONFIGS") for user, topic in ("ab", "cd")]
    found = authors_of([config(5, 1001, "d"), config(6, 1002, "b")], lines, batches((5, 1001), (6, 1002)))
    assert [(each.principal, each.confidence) for each in found] == [("User:c", "high"), ("User:a", "high")]
    assert found[0].host == "10.0.0.1"
    assert found[0].authorized_ms == 1000


def test_two_users_who_were_allowed_the_same_leave_it_undecided() -> None:
    lines = [line(1000, "a", "CreateAcls"), line(1003, "b", "CreateAcls")]
    (found,) = authors_of([acl(5, 1004)], lines, batches((5, 1004)))
    assert found == Author(None, Confidence.UNDECIDED, ("User:a", "User:b"))
    assert author_text(found) == "by User:a or User:b (undecided)"


def test_a_request_makes_the_changes_of_one_moment_alone() -> None:
    lines = [line(1000, "a", "CreateAcls"), line(1500, "b", "CreateAcls")]
    changes = [acl(5, 1001), acl(6, 1001), acl(7, 1501)]
    found = authors_of(changes, lines, batches((5, 1001), (7, 1501)))
    assert [each.principal for each in found] == ["User:a", "User:a", "User:b"]


def test_what_no_request_fits_stays_unnamed() -> None:
    lines = [
        line(1000, "a", "DeleteAcls"),
        line(1000, "a", "IncrementalAlterConfigs", "other", "ALTER_CONFIGS"),
        line(1002, "a", "CreateAcls"),
        line(1001 - 60_000, "a", "CreateAcls"),
    ]
    found = authors_of([acl(5, 1001), config(6, 1001, "t")], lines, batches((5, 1001), (7, 1500)))
    assert [each.confidence for each in found] == [Confidence.NONE, Confidence.NONE]
    assert author_text(found[0]) == ""


@pytest.mark.parametrize("hours", [-11.0, 1.0, 5.75])
def test_a_log_of_another_zone_is_recognized(hours: float) -> None:
    shift = int(hours * 3_600_000)
    changes = [config(n, 10_000 * n, f"t{n}") for n in range(1, 9)]
    lines = [line(10_000 * n - 3, "a", "AlterConfigs", f"t{n}", "ALTER_CONFIGS") for n in range(1, 9)]
    assert other_zone_minutes(changes, lines) is None
    moved = [replace(each, time_ms=each.time_ms + shift) for each in lines]
    assert other_zone_minutes(changes, moved) == hours * 60


@dataclass
class Queue:
    """A controller's queue by its contract: requests are served in order, each appends at once or changes nothing.

    A batch is closed when it was open for `linger_ms`, and may be closed late.
    """

    chance: random.Random
    stall: float
    lines: list[AllowedRequest] = field(default_factory=list)
    changes: list[AdminChange] = field(default_factory=list)
    batches: list[tuple[int, int]] = field(default_factory=list)
    truth: list[str] = field(default_factory=list)
    now: float = 10_000.0
    offset: int = 0
    closes: float = 0.0

    def run(self, requests: int) -> None:
        arrived: list[tuple[float, str, str | None, int]] = []
        at = self.now
        for _ in range(requests):
            at += self.chance.expovariate(1 / self.chance.choice((1, 5, 50)))
            user = self.chance.choice(USERS)
            name = self.chance.choice((None, "t1", "t2"))
            count = self.chance.choice((0, 1, 1, 1, 3))
            kind, operation = ("CreateAcls", "ALTER") if name is None else ("AlterConfigs", "ALTER_CONFIGS")
            self.lines.append(line(int(at), user, kind, name, operation))
            arrived.append((at + self.chance.choice((0, 0, 0, 2, 60)) * self.chance.random(), user, name, count))
        for queued, user, name, count in sorted(arrived):
            self.now = max(self.now, queued) + self.chance.random()
            if self.chance.random() < self.stall:
                self.now += self.chance.uniform(10, 200)
            self._serve(user, name, count)

    def _serve(self, user: str, name: str | None, count: int) -> None:
        if count and self.now > self.closes:
            self.batches.append((self.offset, int(self.now)))
            self.closes = self.now + self.chance.choice((0, 5, 25, 90))
        for _ in range(count):
            at = self.batches[-1][1]
            self.changes.append(acl(self.offset, at) if name is None else config(self.offset, at, name))
            self.truth.append(f"User:{user}")
            self.offset += 1


@pytest.mark.parametrize("stall", [0.0, 0.05, 0.5])
def test_no_change_is_ever_given_to_another_user(stall: float) -> None:
    """Whatever order requests come in, how long they wait and which of them change nothing."""
    counted: Counter[Confidence] = Counter()
    for seed in range(120):
        queue = Queue(random.Random(seed), stall)  # noqa: S311
        queue.run(40)
        queue.lines.sort(key=lambda each: each.time_ms)
        found = authors_of(queue.changes, queue.lines, batches(*queue.batches))
        for author, user in zip(found, queue.truth, strict=True):
            assert user in author.candidates, seed
            assert author.principal in (None, user), seed
            counted[author.confidence] += 1
    assert counted[Confidence.NONE] == 0
    assert counted[Confidence.LIKELY] > 50


def test_who_may_create_every_topic_is_a_candidate_of_each() -> None:
    def created(offset: int, at: int, topic: str) -> AdminChange:
        return AdminChange(offset, 1, at, "topic", topic, "", CREATE_TOPIC, ("Topic", topic))

    def lines() -> Iterator[AllowedRequest]:
        yield line(1000, "a", "CreateTopics", None, "CREATE")
        yield line(1001, "b", "CreateTopics", "t", "CREATE")

    (both,) = authors_of([created(5, 1002, "t")], list(lines()), batches((5, 1002)))
    assert both.candidates == ("User:a", "User:b")
    found = authors_of([created(5, 1002, "x"), created(7, 1040, "t")], list(lines()), batches((5, 1002), (7, 1040)))
    assert [(each.principal, each.confidence) for each in found] == [("User:a", "likely"), ("User:b", "likely")]
    super_user = [replace(each, is_super_user=True) for each in lines()]
    (by_name,) = authors_of([created(5, 1002, "t")], super_user, batches((5, 1002)))
    assert (by_name.principal, by_name.confidence) == ("User:b", "high"), "a super user's line with the name follows"
