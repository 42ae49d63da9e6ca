"""What the lost part of a log means for brokers: which logs moved, and who cannot go on as the rescued state says.

The rescued state has the replicas from before. The brokers that had them deleted their logs, lead with empty ones, and
the others rename the full ones to -stray (LogManager, Kafka 3.9 to 4.3). So the full log is copied before any broker
starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.losses.replica_disks import data_dirs
from kraft_audit.recovery.lost_quorum.rescue_plan import RescuePlan
from kraft_audit.recovery.restore.restore_kit import INTERNAL_TOPICS
from kraft_audit.recovery.restore.stray_logs import shown_folder
from kraft_audit.replay.cluster_state import ClusterState
from kraft_audit.text.shell_commands import UnwritableError, quoted
from kraft_codec.storage.random_access import Storage, join


@dataclass(frozen=True, slots=True)
class MovedLog:
    """A log that `to_broker` needs again and `from_broker` holds. Folders are None where no data dir was read.

    `to_folder` is where it belongs; `is_taken`: a folder of that name is there, from before.
    """

    topic: str
    partition: int
    from_broker: int
    from_folder: str | None
    to_broker: int
    to_folder: str | None
    is_taken: bool = False

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def text(self) -> str:
        return f"{self.name} from broker {self.from_broker} to broker {self.to_broker}"

    @property
    def commands(self) -> Iterator[str]:
        """What copies it, with what is there put beside the data dir; none where a folder is not known."""
        if self.from_folder is None or self.to_folder is None:
            return
        try:
            source, target = quoted(self.from_folder), quoted(self.to_folder)
            aside = quoted(f"{self.to_folder.rpartition('/')[0]}.{self.name}")
        except UnwritableError:
            return
        if self.is_taken:
            yield f"mv {target} {aside}"
        yield f"cp -a {source} {target}"


def moved_logs(storage: Storage, plan: ClusterPlan, at_cut: ClusterState, at_end: ClusterState) -> list[MovedLog]:
    """What has to be copied where, if the state goes back from `at_end` to `at_cut`."""
    later = {(row["topic_id"], row["partition"]): row for row in at_end.existing("partition_changes")}
    wanted = []
    for row in at_cut.existing("partition_changes"):
        moved = later.get((row["topic_id"], row["partition"]))
        if moved is not None:
            dropped = [broker for broker in row["replicas"] if broker not in moved["replicas"]]
            wanted += [(row, broker, _holder(moved)) for broker in dropped]
    if not wanted:
        return []
    folders: dict[tuple[int, str], str] = {}
    dirs: dict[int, list[str]] = {}
    for data_dir in data_dirs(storage, plan):
        dirs.setdefault(data_dir.broker_id, []).append(data_dir.path)
        for entry in data_dir.listing.entries:
            folders[data_dir.broker_id, entry.name] = shown_folder(plan, join(data_dir.path, entry.name))
    logs = []
    for row, broker, holder in wanted:
        name = f"{row['topic']}-{row['partition']}"
        there, own = folders.get((broker, name)), dirs.get(broker, [])
        place = shown_folder(plan, join(own[0], name)) if len(own) == 1 else None
        logs.append(
            MovedLog(
                *(row["topic"], row["partition"], holder, folders.get((holder, name)), broker, there or place),
                is_taken=there is not None,
            )
        )
    return sorted(logs, key=lambda log: (log.topic, log.partition, log.to_broker))


@dataclass(frozen=True, slots=True)
class StrayLogs:
    """A partition of the lost part that the rescued state does not know: brokers rename its logs to -stray.

    `kind` says what happened to it. `folders` are by broker where its logs lie, None where no data dir was read.
    """

    topic: str
    partition: int
    kind: str
    folders: tuple[tuple[int, str | None], ...]

    @property
    def text(self) -> str:
        where = ", ".join(f"broker {broker}" + (f" {folder}" if folder else "") for broker, folder in self.folders)
        return f"{self.topic}-{self.partition} ({where})"


NEW_TOPIC: Final = "new topics"
INTERNAL_TOPIC: Final = "internal topics"
MADE_AGAIN: Final = "topics deleted and made again"
ADDED: Final = "added partitions"


def stray_logs(storage: Storage, plan: ClusterPlan, at_cut: ClusterState, newest: ClusterState) -> list[StrayLogs]:
    """Every partition that the newest state has and the state at the cut has not."""
    known = {(row["topic_id"], row["partition"]) for row in at_cut.existing("partition_changes")}
    topics = {row["topic"]: row["topic_id"] for row in at_cut.existing("topic_changes")}
    rows = [row for row in newest.existing("partition_changes") if (row["topic_id"], row["partition"]) not in known]
    if not rows:
        return []
    folders = {
        (data_dir.broker_id, entry.name): shown_folder(plan, join(data_dir.path, entry.name))
        for data_dir in data_dirs(storage, plan)
        for entry in data_dir.listing.entries
    }
    strays = []
    for row in rows:
        name, topic_id = row["topic"], topics.get(row["topic"])
        kind = INTERNAL_TOPIC if name in INTERNAL_TOPICS else NEW_TOPIC if topic_id is None else MADE_AGAIN
        kind = ADDED if topic_id == row["topic_id"] else kind
        places = tuple((broker, folders.get((broker, f"{name}-{row['partition']}"))) for broker in row["replicas"])
        strays.append(StrayLogs(name, row["partition"], kind, places))
    return sorted(strays, key=lambda stray: (stray.kind, stray.topic, stray.partition))


def _holder(row: Mapping[str, Any]) -> int:
    """The broker with all acknowledged records: the leader, else a member of the ISR."""
    candidates = [row["leader"], *row["isr"], *row["elr"], *row["replicas"]]
    return next(int(broker) for broker in candidates if broker in row["replicas"])


@dataclass(frozen=True, slots=True)
class LostBrokers:
    """The brokers, and the partitions that had every replica in ISR and ELR on them.

    `lagging`: other replicas are left, which may lack acknowledged records. `unreplicated`: no replica is left.
    """

    brokers: tuple[int, ...]
    lagging: tuple[str, ...]
    unreplicated: tuple[str, ...]


def lost_brokers(
    plan: RescuePlan, registered: Collection[int], partitions: Iterable[Mapping[str, Any]], node_id: int
) -> LostBrokers:
    """Which voters that are registered as brokers have no disk among the copies. `node_id`: the rescued node."""
    left = {o.copy.node_id for o in plan.outcomes if o.copy.archived_ms is None} - set(plan.gone)
    lost = (set(registered) & set(plan.voters)) - left - {node_id}
    lagging, unreplicated = [], []
    for row in partitions:
        name = f"{row['topic']}-{row['partition']}"
        if set(row["replicas"]) <= lost:
            unreplicated.append(name)
        elif not {*row["isr"], *row["elr"]} - lost:
            lagging.append(name)
    return LostBrokers(tuple(sorted(lost)), tuple(sorted(lagging)), tuple(sorted(unreplicated)))


def dropped_replicas(at_cut: ClusterState, newest: ClusterState) -> dict[int, tuple[str, ...]]:
    """By broker, the partitions whose ISR it left in the lost part, as far as copies show it.

    The rescued state has it in the ISR again: it may lead there, and the others then truncate acknowledged records.
    """
    later = {(row["topic_id"], row["partition"]): row for row in newest.existing("partition_changes")}
    partitions_by_broker: dict[int, list[str]] = {}
    for row in at_cut.existing("partition_changes"):
        ended = later.get((row["topic_id"], row["partition"]))
        if ended is None:
            continue
        in_sync = {*ended["isr"], *ended["elr"]}
        for broker in {*row["isr"], *row["elr"]} & set(ended["replicas"]) - in_sync if in_sync else ():
            partitions_by_broker.setdefault(broker, []).append(f"{row['topic']}-{row['partition']}")
    return {broker: tuple(sorted(names)) for broker, names in sorted(partitions_by_broker.items())}
