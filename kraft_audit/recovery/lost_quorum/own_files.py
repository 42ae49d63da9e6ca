"""The server.properties of a cluster's nodes: whole where one lies with a disk or is named, else what was kept of it.

A whole file holds passwords. Its bytes go into the config of the rescued controller and nowhere else: no table, no
message and no error shows a value that `NodeConfiguration` does not keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraft_audit.capture.configurations import CAPTURE_MARK, read_named
from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan
from kraft_audit.capture.replica import OpenStorage
from kraft_codec.errors import CodecError, InputError
from kraft_codec.files.configuration import MAX_CONFIGURATION_BYTES, NodeConfiguration
from kraft_codec.storage.random_access import join


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A node's own server.properties. `data` is None where only settings that audits read were kept of it."""

    node_id: int
    place: str
    configuration: NodeConfiguration
    data: bytes | None = field(default=None, repr=False)


def own_files(cluster: ClusterPlan, open_storage: OpenStorage, named: Mapping[int, str]) -> dict[int, OwnFile]:
    """The files by node id: those that --config names, else the newest that was captured. Raises InputError."""
    files: dict[int, OwnFile] = {}
    for replica in sorted(cluster.replicas, key=lambda each: each.capture_number):
        if replica.node_id is not None and replica.configuration and replica.node_id not in named:
            captured = _captured(replica, replica.node_id, open_storage)
            if captured.configuration.problem is None:
                files[replica.node_id] = captured
    for node_id, file in named.items():
        data, configuration = read_named(file)
        if configuration.node_id not in (None, node_id):
            raise InputError(configuration.file, f"it is of node {configuration.node_id}, not of node {node_id}")
        files[node_id] = OwnFile(node_id, configuration.file, configuration, _whole(data))
    return files


def _captured(replica: ReplicaPlan, node_id: int, open_storage: OpenStorage) -> OwnFile:
    configuration = NodeConfiguration.from_json(replica.configuration)
    place = configuration.file if replica.is_archived else join(replica.root, configuration.file)
    data = None
    if not replica.is_archived:
        try:
            with open_storage(replica.root) as storage:
                data = storage.read_small(configuration.file, MAX_CONFIGURATION_BYTES)
        except CodecError:
            data = None  # its name is not as printed
    return OwnFile(node_id, place, configuration, None if data is None else _whole(data))


def _whole(data: bytes) -> bytes | None:
    return None if data.startswith(CAPTURE_MARK) else data
