"""A new node dir that begins with the state of one surviving copy: the controller that a lost quorum goes on with.

Refused where the plan does not stand, and where the state cannot be built from the copy alone. Where software or
metadata.version know no kraft.version 1 the quorum stays static. What was read is never written to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kraft_audit.capture.declared_rescue import DECLARED
from kraft_audit.capture.plan import ARCHIVED_ROOT, ClusterPlan, ReplicaPlan
from kraft_audit.capture.replica import OpenStorage
from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.reading import ClusterReading
from kraft_audit.recovery.feature_levels import UNFINISHED_MIGRATION
from kraft_audit.recovery.lost_quorum.controller_config import ConfigFiles, ControllerConfig
from kraft_audit.recovery.lost_quorum.lost_part import (
    LostBrokers,
    MovedLog,
    StrayLogs,
    dropped_replicas,
    lost_brokers,
    moved_logs,
    stray_logs,
)
from kraft_audit.recovery.lost_quorum.own_files import own_files
from kraft_audit.recovery.lost_quorum.own_log import CutState, lock_holder, state_at_cut
from kraft_audit.recovery.lost_quorum.plan_refusals import named_owners
from kraft_audit.recovery.lost_quorum.rescue_plan import CopyOutcome, RescuePlan, RescueVerdict
from kraft_audit.recovery.lost_quorum.rescue_request import RescueRefusedError, RescueRequest
from kraft_audit.recovery.lost_quorum.rescued_controller import client_path, config_path, rescued_controller
from kraft_audit.recovery.lost_quorum.rescued_dir import RescuedNode, write_node_dir
from kraft_audit.recovery.lost_quorum.rescued_records import UnknownStateError, encoded
from kraft_audit.recovery.lost_quorum.surviving_copies import snapshot_of
from kraft_audit.recovery.private_files import write_private
from kraft_audit.recovery.restore.restorable_state import restorable_state
from kraft_audit.recovery.restore.revoked_rights import RevokedRights, revoked_rights
from kraft_audit.recovery.restore.state_differences import Operation, operations
from kraft_audit.replay.cluster_state import ClusterState, state_at
from kraft_audit.replay.driver import BranchLog
from kraft_audit.text.readable import and_more, listed
from kraft_codec.file_names import MAX_EPOCH, RESCUE_DECLARATION_NAME
from kraft_codec.schemas.releases import KRAFT_VERSION_FEATURE, METADATA_VERSION_FEATURE, METADATA_VERSIONS
from kraft_codec.storage.opener import file_path

QUORUM_EPOCHS_ADDED: Final = 1_000_000
"""Old controllers raise their epoch while they find no majority, by 4 every 10 s before pre-vote (KIP-996)."""
OFFSETS_ADDED: Final = 1_000_000
"""The logs of disks that are gone may have been longer than any copy."""
FIRST_LEVEL: Final = 21
"""metadata.version 3.9-IV0, on which kraft.version 1 depends (KRaftVersion.dependencies, Kafka 4.3)."""
SECRETS_NAMED: Final = 8
PLAINTEXT_NUMBER: Final = 0
"""SecurityProtocol.PLAINTEXT in a registration (Kafka 4.3)."""


@dataclass(frozen=True, slots=True)
class Rescue:
    """What was written to `out`: for which node, from where the state was cut, and where its log begins.

    `lost_after_cut`: what --to leaves out. `keeps_endpoint`: the node is a voter that stays where it is. `ghosts`:
    controllers whose registrations stay. `moved_logs`: what to copy back of partitions reassigned in the lost part.
    `revoked`: rights that the lost part took away. `others`: the other voters of a static quorum with their
    endpoints, as far as anything names them. `lost_brokers`: brokers whose disks are lost with the controllers'.
    `dropped`: by broker, the partitions whose ISR it left in the lost part. `broker_listeners`: by broker, the listener
    by which it looks for controllers, where its config is known. `strays`: partitions of the lost part.
    `brokers_with_login`: those without a plaintext listener.
    """

    out: str
    node: RescuedNode
    plan: RescuePlan
    source: CopyOutcome
    cut: int
    offset: int
    epoch: int
    files: Mapping[str, str]
    lost_after_cut: tuple[Operation, ...]
    keeps_endpoint: bool
    ghosts: tuple[int, ...]
    brokers: tuple[tuple[int, str], ...]
    features: Mapping[str, int]
    moved_logs: tuple[MovedLog, ...]
    others: tuple[tuple[int, tuple[Endpoint, ...]], ...]
    revoked: RevokedRights
    lost_brokers: LostBrokers
    dropped: Mapping[int, tuple[str, ...]]
    config: ControllerConfig
    broker_listeners: Mapping[int, str]
    strays: tuple[StrayLogs, ...] = ()
    brokers_with_login: tuple[int, ...] = ()


def rescue(
    reading: ClusterReading, cluster: ClusterPlan, open_storage: OpenStorage, plan: RescuePlan, request: RescueRequest
) -> Rescue:
    """Writes the dir, and the config of its controller. Raises RescueRefusedError, InputError, OSError."""
    if plan.verdict is not RescueVerdict.STANDS:
        raise RescueRefusedError(plan.reason, plan)
    source = _source(plan, request)
    replica = reading.survey.replicas[source.copy.number].plan
    _refuse_running(reading)
    try:
        with open_storage(replica.root) as storage:
            cut = state_at_cut(storage, replica, source.copy.end_offset, request.to_offset)
    except UnknownStateError as problem:
        raise RescueRefusedError(f"No state can be built from {source.copy.name} alone: {problem}.") from None
    log = BranchLog(reading, source.copy.branch, beyond=snapshot_of(reading.survey, source.copy))
    at_cut, at_end = (state_at(log, offset=end - 1) for end in (cut.end_offset, source.copy.end_offset))
    _refuse_redacted(source, cut)
    _refuse_unready(at_cut, cut)
    brokers = tuple(_brokers(at_cut))
    is_static = _is_static(request, at_cut, plan)
    files = own_files(cluster, open_storage, request.configs)
    controller = rescued_controller(cluster.cluster_id, plan, at_end, source, request, files, is_static=is_static)
    node = controller.node
    offset, epoch = plan.end_offset + OFFSETS_ADDED, plan.newest_epoch + QUORUM_EPOCHS_ADDED
    if epoch > MAX_EPOCH:
        raise RescueRefusedError(f"Epoch {plan.newest_epoch} leaves no room for a later one that is safe.")
    partitions = at_cut.existing("partition_changes")
    # All of it is encoded before anything is written: a dir that is there is whole.
    values = list(encoded(cut.records.records(partitions, _next_producer_id(reading, open_storage, plan, cut))))
    written = write_node_dir(request.out, node, values, offset=offset, epoch=epoch, timestamp_ms=cut.timestamp_ms)
    _write_configs(request.out, controller.files)
    newest = _newest_state(reading, plan, source, at_end)
    rescue = Rescue(
        str(request.out),
        node,
        plan,
        source,
        cut.end_offset,
        offset,
        epoch,
        written,
        tuple(operations(at_cut, at_end)),
        controller.keeps_endpoint,
        tuple(_ghosts(at_cut, node.node_id)),
        brokers,
        {row["name"]: row["feature_level"] for row in at_cut.existing("feature_changes")},
        tuple(moved_logs(storage, cluster, at_cut, newest)),
        controller.others,
        revoked_rights(restorable_state(at_cut), restorable_state(newest)),
        lost_brokers(plan, [broker for broker, _ in brokers], partitions, node.node_id),
        dropped_replicas(at_cut, newest),
        controller.files.config,
        controller.broker_listeners,
        tuple(stray_logs(storage, cluster, at_cut, newest)),
        tuple(sorted(_without_plaintext(at_cut))),
    )
    declare(rescue, cluster, replica)
    return rescue


def _write_configs(out: Path, files: ConfigFiles) -> None:
    for path, data in ((config_path, files.data), (client_path, files.client_data)):
        if data is not None:
            file = path(out)
            write_private(file.parent, file.name, [data])


def _newest_state(reading: ClusterReading, plan: RescuePlan, source: CopyOutcome, at_end: ClusterState) -> ClusterState:
    """The state that brokers may know: the best copy's, whichever copy is gone on from."""
    best = plan.best
    if best is None or best.copy.end <= source.copy.end:
        return at_end
    log = BranchLog(reading, best.copy.branch, beyond=snapshot_of(reading.survey, best.copy))
    return state_at(log, offset=best.copy.end_offset - 1)


def declare(rescue: Rescue, cluster: ClusterPlan, replica: ReplicaPlan) -> None:
    """Writes beside the dir's files what was done: the plan, hashes, what is lost."""
    document = {
        "declared": DECLARED,
        "written_ms": time.time_ns() // 1_000_000,
        "cluster_id": cluster.cluster_id,
        "read_from": _read_from(cluster, replica),
        **asdict(rescue),
    }
    with (Path(rescue.out) / RESCUE_DECLARATION_NAME).open("x", encoding="utf-8") as file:
        json.dump(document, file, indent=1, default=str)


def _read_from(cluster: ClusterPlan, replica: ReplicaPlan) -> dict[str, Any]:
    """Where the copies were: `root` is the folder of the disks, or the lake alone; `lake` one read beside the disks.

    `owners` are those of disks that do not say whose they are.
    """
    disks = next((each.root for each in cluster.replicas if not each.is_archived), None)
    lakes = {each.root.removeprefix(ARCHIVED_ROOT) for each in cluster.replicas if each.is_archived}
    lake = next(iter(lakes), None)
    places = {"root": lake} if disks is None else {"root": disks, "lake": lake}
    path = "" if replica.is_archived else replica.path
    owners = list(named_owners(cluster.replicas))
    return {"lake": None, **places, "path": path, "node_id": replica.node_id, "owners": owners}


def _source(plan: RescuePlan, request: RescueRequest) -> CopyOutcome:
    node_id = request.from_node
    of_node = [outcome for outcome in plan.outcomes if outcome.copy.node_id == node_id]
    if not of_node:
        known = listed(sorted({o.copy.node_id for o in plan.outcomes if o.copy.node_id is not None}))
        raise RescueRefusedError(f"No copy of node {node_id} was read; there are copies of {known}.")
    copy = of_node[0].copy
    is_cut_before = copy.usable_to is not None and request.to_offset is not None and request.to_offset <= copy.usable_to
    if copy.excluded is not None and not is_cut_before:
        raise RescueRefusedError(f"{of_node[0].copy.name} is not to go on from: {of_node[0].copy.excluded}.")
    return of_node[0]


def _refuse_running(reading: ClusterReading) -> None:
    """Refuses where a process of this machine holds a node dir that was read."""
    for replica in reading.survey.replicas:
        if replica.plan.is_archived:
            continue
        root = file_path(replica.plan.root) or replica.plan.root
        folder = "/".join(part for part in (root, replica.plan.path) if part)
        holder = lock_holder(folder)
        if holder is not None:
            raise RescueRefusedError(f"Process {holder} holds {folder}/.lock: stop it first.")


def _refuse_redacted(source: CopyOutcome, cut: CutState) -> None:
    """Refuses a lake's copy whose state needs secrets, which no lake holds."""
    if cut.records.redacted:
        what = listed(cut.records.redacted[:SECRETS_NAMED])
        more = and_more(len(cut.records.redacted) - SECRETS_NAMED)
        raise RescueRefusedError(
            f"The state of {source.copy.name} holds secrets, and a lake keeps only their fingerprints: {what}{more}. "
            "Go on from a disk, without the lake, or bring the state back on a new cluster: kraft-audit restore-kit "
            "with the lake leaves a blank for each secret."
        )


def _refuse_unready(state: ClusterState, cut: CutState) -> None:
    if not state.is_complete or cut.records.is_in_transaction:
        what = "a metadata transaction is open there" if cut.records.is_in_transaction else "records are missing"
        raise RescueRefusedError(f"The state before offset {cut.end_offset} is not complete: {what}.")
    migration = cut.records.value("ZkMigrationStateRecord")
    if migration is not None and migration["zkMigrationState"] in UNFINISHED_MIGRATION:
        raise RescueRefusedError("A migration from ZooKeeper is not finished: go on from ZooKeeper's state instead.")


def _is_static(request: RescueRequest, state: ClusterState, plan: RescuePlan) -> bool:
    """Whether the dir has no kraft.version 1. Raises RescueRefusedError where what is asked for cannot be."""
    reason = _why_static(state)
    if plan.kraft_version > 0:
        if request.is_static:
            raise RescueRefusedError("kraft.version is 1, which never goes down: the quorum cannot be static again.")
        return False
    if request.is_static is False and reason is not None:
        raise RescueRefusedError(f"{reason}: a dynamic quorum needs software of 3.9 or later, and 3.9-IV0.")
    return reason is not None if request.is_static is None else request.is_static


def _why_static(state: ClusterState) -> str | None:
    """Why kraft.version 1 cannot be, None where it can."""
    level = {row["name"]: row["feature_level"] for row in state.existing("feature_changes")}
    metadata_version = level.get(METADATA_VERSION_FEATURE, 0)
    if metadata_version < FIRST_LEVEL:
        return f"metadata.version is {METADATA_VERSIONS.get(metadata_version, metadata_version)}"
    ranges = {
        row["controller_id"]: max(
            (part["max_supported_version"] for part in row["features"] if part["name"] == KRAFT_VERSION_FEATURE),
            default=0,
        )
        for row in state.existing("controller_changes")
    }
    if ranges and not any(ranges.values()):
        return f"Controllers {listed(sorted(ranges))} run software that knows no kraft.version 1"
    return None


def _ghosts(state: ClusterState, node_id: int) -> list[int]:
    rows = state.existing("controller_changes")
    return sorted(row["controller_id"] for row in rows if row["controller_id"] != node_id)


def _brokers(state: ClusterState) -> Iterator[tuple[int, str]]:
    """By id, where it listens: at the first listener that wants no login, if it has one."""
    unknown: Mapping[str, Any] = {"host": "HOST", "port": "PORT"}
    for row in sorted(state.existing("broker_changes"), key=lambda row: int(row["broker_id"])):
        open_points = [point for point in row["end_points"] if point["security_protocol"] == PLAINTEXT_NUMBER]
        point = next(iter((*open_points, *row["end_points"])), unknown)
        yield row["broker_id"], f"{point['host']}:{point['port']}"


def _without_plaintext(state: ClusterState) -> Iterator[int]:
    """The brokers that want a login, or TLS, at every listener."""
    for row in state.existing("broker_changes"):
        protocols = {point["security_protocol"] for point in row["end_points"]}
        if protocols and PLAINTEXT_NUMBER not in protocols:
            yield int(row["broker_id"])


def _next_producer_id(reading: ClusterReading, open_storage: OpenStorage, plan: RescuePlan, cut: CutState) -> int:
    """The largest next producer id that any copy names; a copy that cannot be read has none to say."""
    producer_ids = [cut.records.value("ProducerIdsRecord")]
    for outcome in plan.outcomes:
        replica = reading.survey.replicas[outcome.copy.number].plan
        try:
            with open_storage(replica.root) as storage:
                state = state_at_cut(storage, replica, outcome.copy.end_offset)
            producer_ids.append(state.records.value("ProducerIdsRecord"))
        except UnknownStateError:
            continue
    return max((int(fields["nextProducerId"]) for fields in producer_ids if fields is not None), default=0)
