"""Who a rescued dir is for: node id, endpoints, and the config that its controller starts with."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.lost_quorum.controller_config import (
    ConfigError,
    ConfigFiles,
    controller_config,
    file_to_go_on_with,
)
from kraft_audit.recovery.lost_quorum.own_files import OwnFile
from kraft_audit.recovery.lost_quorum.rescue_plan import CopyOutcome, RescuePlan
from kraft_audit.recovery.lost_quorum.rescue_request import RescueRefusedError, RescueRequest
from kraft_audit.recovery.lost_quorum.rescued_dir import RescuedNode, new_directory_id
from kraft_audit.recovery.lost_quorum.rescued_endpoints import (
    EndpointError,
    known_endpoints,
    listeners_of,
    rescued_endpoints,
)
from kraft_audit.replay.cluster_state import ClusterState
from kraft_audit.text.readable import nouns


@dataclass(frozen=True, slots=True)
class RescuedController:
    """The node, and its config. The other fields are those of `Rescue`."""

    node: RescuedNode
    files: ConfigFiles
    keeps_endpoint: bool
    others: tuple[tuple[int, tuple[Endpoint, ...]], ...]
    broker_listeners: Mapping[int, str]


def config_path(out: Path) -> Path:
    """Where the config is written: beside the dir, as other controllers may get copies of the dir."""
    return Path(f"{out}-server.properties")


def client_path(out: Path) -> Path:
    """Where the config of Kafka's tools is written that log in at the controller."""
    return Path(f"{out}-client.properties")


def rescued_controller(
    cluster_id: str,
    plan: RescuePlan,
    state: ClusterState,
    source: CopyOutcome,
    request: RescueRequest,
    files: Mapping[int, OwnFile],
    *,
    is_static: bool,
) -> RescuedController:
    """`state` is that at the end of the copy, `files` the server.properties of nodes. Raises RescueRefusedError."""
    brokers = {row["broker_id"] for row in state.existing("broker_changes")}
    _refuse_unknown(request.configs, {*plan.voters, *brokers})
    node_id = _node_id(plan, brokers, source, request)
    known = known_endpoints(state, node_id)
    is_combined = node_id in plan.voters and node_id in brokers
    try:
        # A broker's own addresses stand in its file alone.
        ids = [node_id] if is_combined else [node_id, source.copy.node_id, *plan.voters]
        file = file_to_go_on_with(files, request.configs, [each for each in ids if each in plan.voters])
        endpoints = rescued_endpoints(state, node_id, None if file is None else file.configuration, request.endpoints)
        node = RescuedNode(cluster_id, node_id, new_directory_id(), endpoints, is_static)
        keeps_endpoint = bool(known) and {*known.values()} <= {*endpoints} and node_id in plan.voters
        config_files = controller_config(
            node,
            file,
            path=str(config_path(request.out)),
            client=str(client_path(request.out)),
            log_dir=os.path.abspath(request.out),  # noqa: PTH100  # without following links
            is_combined=is_combined,
            is_moved=not keeps_endpoint or file is None or file.node_id != node_id,
        )
    except (ConfigError, EndpointError) as problem:
        raise RescueRefusedError(str(problem)) from None
    others = [voter for voter in plan.voters if voter != node_id][: len(plan.voters) - 1] if is_static else []
    listeners = {broker: listeners_of(files[broker].configuration) for broker in sorted(brokers & files.keys())}
    return RescuedController(
        node,
        config_files,
        keeps_endpoint,
        tuple((voter, tuple(known_endpoints(state, voter).values())) for voter in others),
        {broker: names[0] for broker, names in listeners.items() if names},
    )


def _refuse_unknown(configs: Mapping[int, str], nodes: Collection[int]) -> None:
    unknown = sorted(configs.keys() - nodes)
    if unknown:
        are = "is neither a voter nor a registered broker" if len(unknown) == 1 else "are neither voters nor brokers"
        raise RescueRefusedError(f"--config: {nouns('node', unknown)} {are}.")


def _node_id(plan: RescuePlan, brokers: Collection[int], source: CopyOutcome, request: RescueRequest) -> int:
    """Raises RescueRefusedError."""
    node_id = source.copy.node_id if request.node_id is None else request.node_id
    if node_id is None:
        raise RescueRefusedError("Nothing names the node of that copy: give --node-id and --endpoint.")
    if node_id in brokers and node_id not in plan.voters:
        raise RescueRefusedError(f"Node id {node_id} is a broker's: give --node-id with an id that no broker has.")
    return node_id
