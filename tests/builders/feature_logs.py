"""Metadata logs of registrations and feature levels, made by hand: what kafka-features is asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.record import write_metadata_value
from tests.builders.logs import Log, write_node

Ranges = Mapping[str, tuple[int, int]]

_SINCE_4_0: Final[Ranges] = {
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}
_SINCE_4_2: Final[Ranges] = {**_SINCE_4_0, "share.version": (0, 1), "streams.version": (0, 1)}
SOFTWARE: Final[Mapping[str, Ranges]] = {
    "3.7": {"metadata.version": (1, 19)},
    "3.8": {"metadata.version": (1, 20)},
    "3.9": {"metadata.version": (1, 21), "kraft.version": (0, 1)},
    "4.0": {"metadata.version": (7, 25), **_SINCE_4_0},
    "4.1": {"metadata.version": (7, 27), **_SINCE_4_0},
    "4.2": {"metadata.version": (7, 29), **_SINCE_4_2},
    "4.3": {"metadata.version": (7, 30), **_SINCE_4_2},
    "4.4": {"metadata.version": (7, 33), **_SINCE_4_2, "share.version": (0, 2)},
}
"""What nodes of a release register, as 3.9.2, 4.3.1 and 4.4.0 did; of the others as their classes say."""

FIRST_RELEASE_WITH_DYNAMIC_VOTERS: Final = "3.9"
NEVER_SET: Final = "kraft.version"


class FeatureLog:
    """A log of the voters, led by 1, that registrations and levels are appended to.

    `port` is that of controller 1, where it is to be started.
    """

    def __init__(
        self,
        *,
        kraft_version: int,
        levels: Mapping[str, int],
        voters: Sequence[int] = (1, 2, 3),
        port: int = 9001,
    ) -> None:
        self.kraft_version = kraft_version
        self.voters = voters
        self.log = Log()
        ids = [{"voterId": node_id} for node_id in voters]
        self.log.control("LEADER_CHANGE", {"version": 0, "leaderId": 1, "voters": ids, "grantingVoters": ids}, epoch=1)
        if kraft_version:
            self.log.control("KRAFT_VERSION", {"version": 0, "kRaftVersion": 1})
            self.log.control("KRAFT_VOTERS", {"version": 0, "voters": [_voter(node_id, port) for node_id in voters]})
        self.level(**{name.replace(".", "_"): level for name, level in levels.items()})

    def level(self, **levels: int) -> None:
        """Sets features, each by its name with _ for a point."""
        for name, level in levels.items():
            fields = {"name": name.replace("_", "."), "featureLevel": level}
            self.log.append(write_metadata_value("FeatureLevelRecord", 0, fields))

    def migration(self, state: int) -> None:
        """The migration from ZooKeeper: 0 none, 1 before it, 2 under way, 3 done."""
        self.log.append(write_metadata_value("ZkMigrationStateRecord", 0, {"zkMigrationState": state}))

    def controller(self, node_id: int, software: str) -> None:
        fields = {
            "controllerId": node_id,
            "incarnationId": bytes([node_id]) * 16,
            "zkMigrationReady": False,
            "endPoints": [_end_point(node_id)],
            "features": _features(software),
        }
        self.log.append(write_metadata_value("RegisterControllerRecord", 0, fields))

    def unregister_controller(self, node_id: int) -> None:
        self.log.append(write_metadata_value("UnregisterControllerRecord", 0, {"controllerId": node_id}))

    def broker(self, node_id: int, software: str, *, fenced: bool = False) -> None:
        fields = {
            "brokerId": node_id,
            "incarnationId": bytes([node_id]) * 16,
            "brokerEpoch": self.log.next_offset,
            "endPoints": [_end_point(node_id)],
            "features": _features(software),
            "rack": None,
            "fenced": fenced,
        }
        self.log.append(write_metadata_value("RegisterBrokerRecord", 1, fields))
        self._epoch = fields["brokerEpoch"]

    def unregister_broker(self, node_id: int) -> None:
        """Of the broker that registered last."""
        fields = {"brokerId": node_id, "brokerEpoch": self._epoch}
        self.log.append(write_metadata_value("UnregisterBrokerRecord", 0, fields))

    def write(self, folder: Path) -> Path:
        """The node dirs of all voters; the log dir of the leader."""
        state = QuorumState(1, 1, 1, -1, "A" * 22)
        for node_id in self.voters:
            write_node(folder, node_id, self.log.content, state=state)
        return folder / "node-1" / "__cluster_metadata-0"


def _voter(node_id: int, port: int) -> dict[str, Any]:
    return {
        "voterId": node_id,
        "voterDirectoryId": b"d" * 15 + bytes([node_id]),
        "endpoints": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": port if node_id == 1 else 9000 + node_id}],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }


def _end_point(node_id: int) -> dict[str, Any]:
    return {"name": "LISTENER", "host": "127.0.0.1", "port": 9000 + node_id, "securityProtocol": 0}


def _features(software: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "minSupportedVersion": lowest, "maxSupportedVersion": highest}
        for name, (lowest, highest) in SOFTWARE[software].items()
    ]


def random_feature_log(random: Random) -> FeatureLog:
    """A cluster whose nodes run releases that support its levels, with fenced, gone and renewed nodes."""
    level = random.choice((14, 15, 19, 20, 21, 21, 22, 25, 27, 29, 29, 30, 30, 30, 31, 33))
    able = [name for name, ranges in SOFTWARE.items() if ranges["metadata.version"][1] >= level]
    newest = random.choice(able)
    newer = able[: able.index(newest) + 1]
    is_dynamic = newer[0] >= FIRST_RELEASE_WITH_DYNAMIC_VOTERS and random.random() < 0.7
    oldest = newer[0]
    levels = {
        name: random.choice((0, highest))
        for name, (_, highest) in SOFTWARE[oldest].items()
        if name not in ("metadata.version", NEVER_SET)
    }
    made = FeatureLog(
        kraft_version=int(is_dynamic), levels={"metadata.version": level, **{n: at for n, at in levels.items() if at}}
    )
    mixed: Sequence[str] = newer if random.random() < 0.4 else [newest]
    if level >= 15:
        made.controller(1, newest)
        for node_id in (2, 3):
            if is_dynamic or random.random() < 0.8:
                made.controller(node_id, random.choice(mixed))
        if random.random() < 0.4:
            made.controller(9, random.choice(newer))
    for node_id in range(11, 11 + random.randrange(4)):
        made.broker(node_id, random.choice(mixed), fenced=random.random() < 0.3)
        if random.random() < 0.3:
            made.unregister_broker(node_id)
        elif random.random() < 0.3:
            made.broker(node_id, newest)
    if random.random() < 0.25:
        made.broker(15, oldest, fenced=True)
    if level >= 33 and random.random() < 0.5:
        made.controller(8, "4.4")
        made.unregister_controller(8)
    return made
