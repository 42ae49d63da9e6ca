"""The old logs of topics that are created again: where they are, and how a broker takes them for the new topic's.

A created topic has a new id. A broker that starts with logs of an id that its cluster does not know renames them to
NAME-PARTITION.<hex digits>-stray and keeps them (LogManager, Kafka 3.7 to 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.losses.replica_disks import data_dirs
from kraft_audit.recovery.restore.restorable_state import RestorableTopic
from kraft_audit.text.readable import listed
from kraft_audit.text.shell_commands import UnwritableError, quoted
from kraft_codec.errors import CodecError
from kraft_codec.files.state_files import parse_partition_metadata
from kraft_codec.storage.random_access import EntryKind, Storage, join

METADATA_FILE: Final = "partition.metadata"
_STRAY: Final = re.compile(r"(.+-[0-9]+)\.[0-9a-f]{32}-stray")


@dataclass(frozen=True, slots=True)
class OldLog:
    """The log of one replica of an old topic: its folder as it was read, None where no data dir of it was.

    `leader_epoch` is the highest that the old topic had.
    """

    topic: str
    partition: int
    broker_id: int
    folder: str | None
    leader_epoch: int = -1


def old_logs(
    storage: Storage, plan: ClusterPlan, topics: Mapping[str, RestorableTopic], *, names_missing: bool
) -> list[OldLog]:
    """The old logs of these topics. `names_missing`: those that are on a broker's disk which was not read, too."""
    wanted = {f"{name}-{number}": (name, number) for name, topic in topics.items() for number in topic.replicas}
    folders_by_place: dict[tuple[str, int, int], list[str]] = {}
    for data_dir in data_dirs(storage, plan):
        for entry in data_dir.listing.entries:
            stray = _STRAY.fullmatch(entry.name)
            place = wanted.get(entry.name if stray is None else stray[1])
            folder = join(data_dir.path, entry.name)
            if entry.kind is not EntryKind.DIRECTORY or place is None:
                continue
            if _is_of(storage, folder, topics[place[0]].topic_id):
                folders_by_place.setdefault((*place, data_dir.broker_id), []).append(shown_folder(plan, folder))
    logs = [
        OldLog(*place, folder, topics[place[0]].leader_epoch)
        for place, folders in folders_by_place.items()
        for folder in folders
    ]
    if names_missing:
        logs += [
            OldLog(name, number, broker, None, topic.leader_epoch)
            for name, topic in topics.items()
            for number, replicas in topic.replicas.items()
            for broker in replicas
            if (name, number, broker) not in folders_by_place
        ]
    return sorted(logs, key=lambda log: (log.topic, log.partition, log.broker_id, log.folder or ""))


def _is_of(storage: Storage, folder: str, topic_id: str) -> bool:
    """Whether a folder is of the topic of this id; one that does not say so may be."""
    try:
        return parse_partition_metadata(storage.read_small(join(folder, METADATA_FILE))).topic_id == topic_id
    except CodecError:
        return True


def shown_folder(plan: ClusterPlan, folder: str) -> str:
    """A folder as whoever gave the path would name it."""
    root = plan.replicas[0].root if plan.replicas else ""
    return join(root, folder) if root else folder


def old_log_steps(logs: Sequence[OldLog], next_producer_id: int | None) -> Iterator[str]:
    """What to do with them once the topics are there, in order.

    `next_producer_id`: the old cluster's, where the new one's may be below it. A new producer with the id of an old
    record was seen to get acknowledgements for sends that are nowhere, as a broker takes them for duplicates (4.3.1).
    """
    topics = list(dict.fromkeys(log.topic for log in logs))
    if not topics:
        return
    yield "Records come back only from the old logs. Never delete a folder that ends in -stray. In this order:"
    yield f"1. Run this script, so that these topics have all of their partitions: {listed(topics)}."
    epochs = ", ".join(f"{log.topic} {log.leader_epoch}" for log in {log.topic: log for log in logs}.values())
    yield "2. Restart every broker with a replica of them: it renames old logs to -stray, and the leader epochs rise."
    yield f"   Again until each partition's is above the one that the old topic had ({epochs}); the last line of"
    yield "   leader-epoch-checkpoint in the new log's folder shows it on the broker that leads: a follower of an empty"
    yield "   log writes none. At a lower one the leader drops the epochs of old records, and followers that know them"
    yield "   stay out of the ISR."
    yield "3. Stop all of these brokers: a leader without the old log would make the others truncate theirs."
    yield "4. In each data dir, with the topic's id of now in TOPIC_ID (kafka-topics --describe shows it as TopicId):"
    yield f"     {' && '.join(_moved('DIR', 'NAME-PARTITION', 'DIR/NAME-PARTITION'))}"
    for log in logs:
        if log.folder is not None:
            data_dir, name = log.folder.rpartition("/")[0], f"{log.topic}-{log.partition}"
            yield f"     broker {log.broker_id}: {' && '.join(_moved(data_dir, name, log.folder))}"
    missing = [log for log in logs if log.folder is None]
    for topic in dict.fromkeys(log.topic for log in missing):
        brokers = sorted({log.broker_id for log in missing if log.topic == topic})
        word = "brokers" if len(brokers) > 1 else "broker"
        yield f"     {word} {listed(brokers)}: DIR/{topic}-*; no data dir with it was read"
    yield "5. Start the brokers again. Where old logs of one partition differ in size, start the broker with the"
    yield "   largest first, and the others once it leads: they truncate what the leader lacks."
    if next_producer_id is not None:
        yield f"6. Let producers write only once the cluster's next producer id is above {next_producer_id}"
        yield "   (kraft-audit state shows it as PRODUCER_IDS): sends of a producer whose id is in old records are"
        yield "   acknowledged and appear nowhere."


def _moved(data_dir: str, name: str, folder: str) -> Iterator[str]:
    """Commands: the new log makes room for the old one, which gets the new id.

    A broker does not start with a folder of another form of name among its logs: the new one goes beside the data dir.
    """
    log = join(data_dir, name)
    try:
        new, aside, metadata = quoted(log), quoted(f"{data_dir or 'data-dir'}.{name}"), quoted(join(log, METADATA_FILE))
        old = f"{new}.*-stray" if folder == log else quoted(folder)
    except UnwritableError:
        return
    yield f"mv {new} {aside}"
    yield f"mv {old} {new}"
    yield f"printf 'version: 0\\ntopic_id: %s\\n' \"$TOPIC_ID\" > {metadata}"
