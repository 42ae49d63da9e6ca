"""What is kept of a cluster as one piece of bytes: of use with the same versions, and refused in all other cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.findings.kept_state import KeptState, state_name, state_versions
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.replay.replay_state import STATE_PARTS, ReplayBase
from kraft_audit.replay.silver_rows import silver
from kraft_audit.tables.kept_parts import KeptPartsError, columns_from_bytes, pack, unpack
from kraft_codec.records.record import write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.memory_lake import KEY


def kept_state(plan: Any) -> KeptState:
    bases: list[ReplayBase] = []
    with ClusterReading(plan, ReadingSettings(open_storage, Redactor(KEY))) as reading:
        for _ in silver(plan, reading, keep=bases.append):
            pass
        return KeptState(state_versions(plan, "rules 1"), reading.kept_survey(), bases[0], b"of the rules")


def test_a_state_is_taken_with_its_versions_alone(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    plan = reading.plan(tmp_path)
    state = kept_state(plan)
    content = state.to_bytes()
    assert KeptState.from_bytes(content, state.versions) == state
    assert KeptState.from_bytes(content, state.versions).to_bytes() == content
    assert kept_state(plan).to_bytes() == content
    assert len(state_name(content)) == 32
    others = (
        state_versions(plan, "rules 2"),
        state_versions(replace(plan, dialect="kip856"), "rules 1"),
        state_versions(replace(plan, defaults=(("min.insync.replicas", "2"),)), "rules 1"),
    )
    for versions, name in zip(others, ("rules", "dialect", "configs"), strict=True):
        with pytest.raises(KeptPartsError, match=f"another {name}"):
            KeptState.from_bytes(content, versions)


def test_a_damaged_state_is_not_taken(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    state = kept_state(reading.plan(tmp_path))
    content = state.to_bytes()
    parts = unpack(content)
    damaged = [b"", content[:-1], pack({"versions": parts["versions"]}), pack({**parts, "versions": b"{"})]
    damaged += [pack({**parts, name: parts[name][:-3]}) for name in ("survey", "settled")]
    for each in damaged:
        with pytest.raises(KeptPartsError):
            KeptState.from_bytes(each, state.versions)


def test_a_state_holds_no_secret(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    secret = "s3cr3t-of-a-keystore"  # noqa: S105  # what must not be found
    fields = {"resourceType": 4, "resourceName": "1", "name": "ssl.keystore.password", "value": secret}
    usual_log.append(write_metadata_value("ConfigRecord", 0, fields))
    node(tmp_path, 1, usual_log.content)
    state = kept_state(reading.plan(tmp_path))
    shown = unpack(state.settled.content)
    rows = [
        row
        for name in ("config_changes", "security_changes")
        for row in columns_from_bytes(shown[name], STATE_PARTS[name]).to_pylist()
    ]
    assert [row["name"] for row in rows] == ["ssl.keystore.password"]
    assert secret not in str(rows)
    assert secret.encode() not in state.to_bytes()
