"""Who changed what on a real Kafka: each change that the audit gives to a user is one that this user made.

The witness is the client: every call leaves a mark in the metadata log that no other call leaves. Needs Java and
Kafka's jars: KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.findings.authorizer_log import read_authorizer_logs
from tests.builders.admin_calls import USERS, AdminDay, mark_of
from tests.builders.kafka_of_users import kafka_of_users
from tests.witness.audited import FAST_FOLDER

pytestmark = [pytest.mark.kafka, pytest.mark.ci]

CALLS = int(os.environ.get("KRAFT_AUDIT_CALLS", "300"))
"""`make drills` makes a thousand."""
PAIRS = max(1, CALLS // 200)
"""So often do two users do at one time what Kafka's log cannot tell apart."""


def test_changes_are_given_to_those_who_made_them(kafka_classpath: str, project_root: Path) -> None:
    groups = list(AdminDay(seed=1).groups(CALLS, PAIRS))
    calls = [call for group in groups for call in group]
    assert len(calls) == CALLS
    with (
        tempfile.TemporaryDirectory(dir=FAST_FOLDER) as folder,  # each call waits for an fsync
        kafka_of_users(Path(folder), kafka_classpath, project_root) as kafka,
    ):
        outcomes = kafka.run(groups)
        (cluster,) = kraft_audit.open(str(kafka.log_dir))
        changes = cluster.changes(read_authorizer_logs([kafka.authorizer_log]))
    made = {call.mark: f"User:{call.user}" for call, outcome in zip(calls, outcomes, strict=True) if outcome == "ok"}
    made.pop("", None)
    authors = {mark_of(each.change.kind, each.change.subject, each.change.text): each.author for each in changes}
    assert made.keys() <= authors.keys(), "every call that ended well changed something"
    assert len(made) > CALLS * 0.8
    assert set(made.values()) == {f"User:{user}" for user in USERS}
    found = {mark: author for mark in made if (author := authors[mark]) is not None}
    wrong = {mark: who for mark, who in found.items() if who.principal not in (None, made[mark])}
    assert wrong == {}
    named = Counter(author.principal is not None for author in found.values())
    assert named[True] >= 0.99 * len(made), named
    assert all(made[mark] in who.candidates for mark, who in found.items() if who.principal is None)
    unmade = [who for mark, who in authors.items() if mark not in made and who is not None]
    assert {who.principal for who in unmade} == {None}, "what Kafka did by itself stays unnamed"
