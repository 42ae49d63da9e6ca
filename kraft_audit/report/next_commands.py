"""What to run next in the clusters of a lake, as their pages say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kraft_audit.report.lake_source import LakeSource
from kraft_audit.report.needed_action import needed_action
from kraft_codec.errors import InputError

CLUSTERS_ASKED_MAX: Final = 40
"""The history of each is read."""


def next_commands(lake: str, cluster_ids: Sequence[str]) -> Mapping[str, str]:
    """The command to begin with in each of these clusters, by id, of those that need something."""
    try:
        clusters = list(LakeSource(lake).of(cluster_ids[:CLUSTERS_ASKED_MAX]))
    except InputError:  # a lake in which no page can be made yet; messages do not wait for it
        return {}
    actions = {given.cluster_id: needed_action(given) for given in clusters}
    return {id_: action.command for id_, action in actions.items() if action is not None}
