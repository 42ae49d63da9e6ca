"""Whose disk it is."""

from __future__ import annotations

from collections.abc import Iterator

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.node_identities import identity_doubts
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Thresholds


@rule("KV018", control="quorum_safety", needs=("captures", "voter_sets", "broker_changes", "controller_changes"))
def kv018(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for node_id, facts in sorted(identity_doubts(history).items()):
        yield Case(f"node {node_id}", facts[0].text, evidence=facts)
