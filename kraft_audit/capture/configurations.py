"""Which configuration belongs to a captured node dir: one in it, one above it with its node.id, or one that is named.

Nobody copies a configuration to where Kafka reads it. A file in the node dir is that node's. A file in a folder above
may be another node's, or the one that Kafka ships: it counts only where its node.id is that of the disk. So does a file
elsewhere below the same path, as in a support bundle, unless node dirs of several clusters lie as near to it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan
from kraft_codec.errors import ChoiceError, CodecError, InputError
from kraft_codec.file_names import CONFIGURATION_NAMES, printable
from kraft_codec.files.configuration import MAX_CONFIGURATION_BYTES, NodeConfiguration, parse_configuration
from kraft_codec.files.discovery import Discovery, FileEntry, ReplicaDir
from kraft_codec.storage.random_access import Storage

OPTION: Final = "--config"
CAPTURE_MARK: Final = b"# kraft-capture:"
"""What kraft-capture writes first into a configuration of which it copied only settings that audits read."""


@dataclass(frozen=True, slots=True)
class Configurations:
    """The configurations below a path, each read once, as many node dirs may lie below one."""

    read: Callable[[str], NodeConfiguration]

    @classmethod
    def of_storage(cls, storage: Storage) -> Configurations:
        """Those of an opened path."""

        def read(path: str) -> NodeConfiguration:
            try:
                return parse_configuration(storage.read_small(path, MAX_CONFIGURATION_BYTES), printable(path))
            except CodecError as problem:
                return NodeConfiguration(printable(path), (), problem=problem.detail)

        return cls(functools.cache(read))

    def of_replica(self, replica: ReplicaDir, node_id: int | None) -> str:
        """The configuration of a node dir, as `NodeConfiguration.to_json`; empty where none is surely its own."""
        if node_id is None:
            return ""
        for folder, files in groupby(replica.configurations, lambda file: file.path.rpartition("/")[0]):
            found = [(file, self.read(file.path)) for file in sorted(files, key=_order)]
            own = [each for _, each in found if each.node_id == node_id]
            if not own and folder == replica.node_dir:
                own = [each for file, each in found if file.name in CONFIGURATION_NAMES][:1]
            if own:
                return _only(own)
        return ""

    def elsewhere(self, path: str, node_id: int, found: Discovery, cluster_ids: Mapping[str, str | None]) -> str:
        """The configuration of a node dir among those in no node dir, as `of_replica` gives it.

        The nearest folder above the node dir decides that has one with the node's id somewhere below it. `cluster_ids`
        has the cluster of each node dir: a folder with several clusters decides nothing.
        """
        for folder in _folders_above(path):
            clusters = {cluster_id for other, cluster_id in cluster_ids.items() if other.startswith(folder)}
            if len(clusters) > 1:
                return ""
            below = [self.read(file.path) for file in found.configurations if file.path.startswith(folder)]
            own = [each for each in below if each.node_id == node_id]
            if own:
                return _only(own)
        return ""


def with_configurations_elsewhere(
    plans: Sequence[ReplicaPlan], found: Discovery, configurations: Configurations
) -> Iterator[ReplicaPlan]:
    """The plans, those without a configuration with one that lies elsewhere below the path, as in a support bundle."""
    cluster_ids = {plan.path: plan.cluster_id for plan in plans}
    for plan in plans:
        configuration = plan.configuration
        if not configuration and plan.node_id is not None and found.configurations:
            configuration = configurations.elsewhere(plan.path, plan.node_id, found, cluster_ids)
        yield replace(plan, configuration=configuration) if configuration != plan.configuration else plan


def _only(own: Sequence[NodeConfiguration]) -> str:
    """The configuration, where all agree: of several that differ, nothing says with which one the node is started."""
    return own[0].to_json() if len({each.settings for each in own}) == 1 else ""


def _folders_above(path: str) -> Iterator[str]:
    """The folders above a path as beginnings of paths, the nearest first: `a/b/`, `a/` and the empty one."""
    while path:
        path = path.rpartition("/")[0]
        yield f"{path}/" if path else ""


def _order(file: FileEntry) -> tuple[int, str]:
    names = CONFIGURATION_NAMES
    return names.index(file.name) if file.name in names else len(names), file.name


def with_named(
    root: str, plans: Sequence[ClusterPlan], named: Mapping[int, str | os.PathLike[str]]
) -> list[ClusterPlan]:
    """The plans with configurations that are named by node id, in place of any that were found.

    Raises InputError where a file cannot be read, ChoiceError where not just one cluster has a node of that id.
    """
    given = {node_id: _read_named(os.fspath(file)) for node_id, file in named.items()}
    for node_id in given:
        count = sum(any(each.node_id == node_id for each in plan.replicas) for plan in plans)
        if count != 1:
            ids = ", ".join(map(str, sorted(set(_node_ids(plans))))) or "none"
            there = f"{count} clusters have such a node: add --cluster" if count else f"there are {ids}"
            raise ChoiceError(root, f"{OPTION}: node {node_id}: {there}")
    return [
        replace(
            plan,
            replicas=tuple(
                replace(each, configuration=given[each.node_id]) if each.node_id in given else each
                for each in plan.replicas
            ),
        )
        for plan in plans
    ]


def _node_ids(plans: Sequence[ClusterPlan]) -> Iterator[int]:
    return (each.node_id for plan in plans for each in plan.replicas if each.node_id is not None)


def _read_named(file: str) -> str:
    return read_named(file)[1].to_json()


def read_named(file: str) -> tuple[bytes, NodeConfiguration]:
    """A configuration that --config names, whole, and its kept settings. Raises InputError."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_CONFIGURATION_BYTES + 1)
        configuration = parse_configuration(data, printable(file))
    except OSError as problem:
        raise InputError(printable(file), problem.strerror or "unreadable") from None
    except CodecError as problem:
        raise InputError(printable(file), problem.detail) from None
    if not configuration.settings:
        raise InputError(printable(file), "no node.id and no other setting of a node: expected a server.properties")
    return data, configuration
