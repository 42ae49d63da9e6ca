"""Registrations of brokers and controllers (ClusterControlManager, ClusterDelta, BrokerRegistration of Kafka 4.3.0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from kraft_audit.replay.history import Change, History
from kraft_audit.replay.tables import BROKER_CHANGES, CONTROLLER_CHANGES
from kraft_codec.contract import Table
from kraft_codec.uuids import uuid_text

_FENCING = {1: True, -1: False}


class BrokerHistory(History):
    """`broker_changes`."""

    table: ClassVar[Table] = BROKER_CHANGES
    messages: ClassVar[tuple[str, ...]] = (
        "RegisterBrokerRecord",
        "UnregisterBrokerRecord",
        "FenceBrokerRecord",
        "UnfenceBrokerRecord",
        "BrokerRegistrationChangeRecord",
    )

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[Change]:
        """A registration replaces; all else must meet the registration with the record's id and epoch."""
        if name == "RegisterBrokerRecord":
            cause = "reregistered" if row["broker_id"] in self.state else "registered"
            yield Change(row["broker_id"], cause, _registration(row))
            return
        broker_id, epoch = (row[n] for n in (("id", "epoch") if "id" in row else ("broker_id", "broker_epoch")))
        before = self.state.get(broker_id)
        if before is None or before["broker_epoch"] != epoch:
            self.problems.append((row["offset"], "unknown_broker" if before is None else "broker_epoch_mismatch"))
            if before is None or name != "UnregisterBrokerRecord":
                return  # the image, unlike the controller, unregisters without comparing epochs
        if name == "UnregisterBrokerRecord":
            yield Change(broker_id, "unregistered", None, before)
        elif name == "FenceBrokerRecord":
            yield Change(broker_id, "fenced", {**before, "fenced": True})
        elif name == "UnfenceBrokerRecord":
            yield Change(broker_id, "unfenced", {**before, "fenced": False})
        else:
            yield _registration_change(before, row)


class ControllerHistory(History):
    """`controller_changes`: before Kafka 4.4 a controller that left stays registered for ever."""

    table: ClassVar[Table] = CONTROLLER_CHANGES
    messages: ClassVar[tuple[str, ...]] = ("RegisterControllerRecord", "UnregisterControllerRecord")

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[Change]:
        """A registration replaces by id."""
        controller_id = row["controller_id"]
        before = self.state.get(controller_id)
        if name == "UnregisterControllerRecord":
            if before is None:
                self.problems.append((row["offset"], "unknown_controller"))
            else:
                yield Change(controller_id, "unregistered", None, before)
            return
        state = {
            "controller_id": controller_id,
            "incarnation_id": uuid_text(row["incarnation_id"]),
            "zk_migration_ready": row["zk_migration_ready"],
            "end_points": _by_name(row["end_points"]),
            "features": _by_name(row["features"]),
        }
        yield Change(controller_id, "registered" if before is None else "reregistered", state)


def _registration(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "broker_id": row["broker_id"],
        "broker_epoch": row["broker_epoch"],
        "incarnation_id": uuid_text(row["incarnation_id"]),
        "fenced": row["fenced"],
        "in_controlled_shutdown": row["in_controlled_shutdown"],
        "rack": row["rack"],
        "log_dirs": _sorted_directories(row["log_dirs"]),
        "cordoned_log_dirs": _texts(row["cordoned_log_dirs"]),
        "end_points": _by_name(row["end_points"]),
        "features": _by_name(row["features"]),
        "is_migrating_zk_broker": row["is_migrating_zk_broker"],
    }


def _registration_change(before: Mapping[str, Any], row: Mapping[str, Any]) -> Change:
    """BrokerRegistrationChangeRecord: 0, empty and null mean no change; an empty cordoned list is a value."""
    state = dict(before)
    cause = "unchanged"
    if row["cordoned_log_dirs"] is not None:
        state["cordoned_log_dirs"] = _texts(row["cordoned_log_dirs"])
        # Brokers of 4.3 write the list with every unfencing, nearly always empty as it was.
        if state["cordoned_log_dirs"] != before["cordoned_log_dirs"]:
            cause = "cordoned_log_dirs"
    if row["log_dirs"]:
        state["log_dirs"] = _sorted_directories(row["log_dirs"])
        cause = "log_dirs"
    if row["in_controlled_shutdown"] == 1:
        state["in_controlled_shutdown"] = True
        cause = "controlled_shutdown"
    if row["fenced"] in _FENCING:
        state["fenced"] = _FENCING[row["fenced"]]
        cause = "fenced" if state["fenced"] else "unfenced"
    return Change(row["broker_id"], cause, state)


def _by_name(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A snapshot writes features and listeners in hash order: by name they compare."""
    return sorted(items, key=lambda item: str(item["name"]))


def _sorted_directories(directories: Sequence[bytes]) -> list[str]:
    """As BrokerRegistration sorts them: by both halves as signed numbers."""

    def halves(value: bytes) -> tuple[int, int]:
        return int.from_bytes(value[:8], "big", signed=True), int.from_bytes(value[8:], "big", signed=True)

    return [uuid_text(directory) for directory in sorted(directories, key=halves)]


def _texts(directories: Sequence[bytes] | None) -> list[str]:
    return [uuid_text(directory) for directory in directories or ()]
