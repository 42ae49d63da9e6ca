"""Which subjects each rule must name, derived from an engine run's truth by the words of the rules alone."""

from __future__ import annotations

from collections import defaultdict

from tests.witness.cluster_states import BROKER, ELR, METADATA_VERSION, MIN_ISR, UNCLEAN, ClusterState, states_of
from tests.witness.truth import PartitionState, Subject, Truth

HOUR_MS = 3_600_000
MAX_ISR_CHANGES, MAX_FENCINGS, MAX_RESTARTS, MIN_STARTS = 12, 3, 6, 3
WITHOUT_TLS = (0, 2)
Names = dict[str, set[str]]

EVER = (
    "KP001",
    "KP002",
    "KP005",
    "KP006",
    "KP007",
    "KP008",
    "KP011",
    "KP012",
    "KP014",
    "KB001",
    "KB003",
    "KB010",
    "KB011",
)
"""Raised by what was once so."""
AT_END = ("KP009", "KP010", "KP018", "KP021", "KB004", "KB005")
"""Raised by what is so at the end of the log."""


def expected_of(truth: Truth, *, from_offset: int, to_offset: int) -> Names:
    """Subjects by rule, for the committed log of [from_offset, to_offset) and the state that it begins with."""
    names: Names = defaultdict(set)
    restless = Restlessness()
    returns = UncleanReturns()
    registrations = Registrations()
    state: ClusterState | None = None
    for state in states_of(truth, to_offset=to_offset):
        is_before = state.offset < from_offset
        if is_before:
            names.clear()
        for subject in state.partitions if is_before else state.concerned:
            _of_partition(names, state, subject)
        _of_config(names, state)
        restless.see(names, state, is_counted=not is_before)
        registrations.see(names, state, is_counted=not is_before)
        if is_before:
            continue
        for subject, before in state.before.items():
            if subject in state.partitions:
                _of_change(names, state, subject, before)
        returns.see(names, state)
    if state is not None:
        _at_end(names, state)
    return names


def name_of(state: ClusterState, subject: Subject) -> str:
    return f"{state.partitions[subject]['topic']}-{subject[1]}"


def _of_partition(names: Names, state: ClusterState, subject: Subject) -> None:
    now = state.partitions[subject]
    isr, elr = set(now["isr"]), set(now["elr"])
    for rule, holds in (
        ("KP001", len(isr | elr) == 1 and len(now["replicas"]) > 1),
        ("KP002", now["leader"] == -1),
        ("KP005", len(isr) < state.min_isr(subject)),
        ("KP006", bool(isr & elr) or not elr <= set(now["replicas"])),
    ):
        if holds:
            names[rule].add(name_of(state, subject))


def _of_change(names: Names, state: ClusterState, subject: Subject, before: PartitionState) -> None:
    """What one record did to a partition."""
    now, name = state.partitions[subject], name_of(state, subject)
    if state.line.get("type") == "ClearElrRecord" and before["elr"] and not now["elr"]:
        names["KP007"].add(name)
    if state.line.get("type") == "PartitionChangeRecord" and now["elr"] and len(now["isr"]) >= state.min_isr(subject):
        names["KP006"].add(name)
    if _is_completed(before, now) and len(now["isr"]) < state.min_isr(subject):
        names["KP014"].add(name)


def _is_completed(before: PartitionState, now: PartitionState) -> bool:
    """A reassignment that ends with other replicas than there were before it: not under way, not taken back."""
    if now["adding_replicas"] or now["removing_replicas"]:
        return False
    return set(now["replicas"]) != set(before["replicas"]) - set(before["adding_replicas"])


def _of_config(names: Names, state: ClusterState) -> None:
    for (kind, resource, key), value in state.configs.items():
        if key == UNCLEAN and value == "true":
            broker = f"broker {resource}" if resource else "all brokers"
            names["KP011"].add(broker if kind == BROKER else f"topic {resource}")


class Restlessness:
    """Times of what comes and goes: more than so many within an hour."""

    def __init__(self) -> None:
        self.isr_changes: dict[Subject, list[int]] = defaultdict(list)
        self.fencings: dict[int, list[int]] = defaultdict(list)
        self.restarts: dict[int, list[int]] = defaultdict(list)
        self.fenced: dict[int, bool] = {}
        self.processes: dict[int, tuple[str | None, int | None]] = {}

    def see(self, names: Names, state: ClusterState, *, is_counted: bool) -> None:
        if "append_ms" not in state.line:
            return
        now_ms = state.line["append_ms"]
        for subject, before in state.before.items() if is_counted else ():
            is_changed = subject in state.partitions and before["isr"] != state.partitions[subject]["isr"]
            if is_changed and _is_storm(self.isr_changes[subject], now_ms, MAX_ISR_CHANGES):
                names["KP012"].add(name_of(state, subject))
        if is_counted:
            self._see_brokers(names, state, now_ms)

    def _see_brokers(self, names: Names, state: ClusterState, now_ms: int) -> None:
        """Fencings that the same process came back from, and new processes."""
        for broker_id, broker in state.brokers.items():
            process = broker["incarnationId"]
            before, fenced_ms = self.processes.get(broker_id, (process, None))
            if before != process:
                fenced_ms = None
                if _is_storm(self.restarts[broker_id], now_ms, MAX_RESTARTS):
                    names["KB001"].add(f"broker {broker_id}")
            elif broker["fenced"] and not self.fenced.get(broker_id, True):
                fenced_ms = now_ms
            elif not broker["fenced"] and fenced_ms is not None:
                if _is_storm(self.fencings[broker_id], fenced_ms, MAX_FENCINGS):
                    names["KB001"].add(f"broker {broker_id}")
                fenced_ms = None
            self.processes[broker_id] = (process, fenced_ms)
            self.fenced[broker_id] = broker["fenced"]
        for broker_id in self.fenced.keys() - state.brokers.keys():
            # A broker that was unregistered and comes back is another process.
            self.processes[broker_id] = (None, None)
            self.fenced.pop(broker_id)


class Registrations:
    """What registrations show of listeners, log dirs and starts; a log that begins later begins with a snapshot's."""

    def __init__(self) -> None:
        self.log_dirs: dict[int, set[str]] = {}
        self.registered: set[tuple[int, str]] = set()
        self.processes: dict[int, set[str]] = defaultdict(set)
        self.sole_epochs: dict[int, int] = defaultdict(int)
        self.has_broker = False

    def see(self, names: Names, state: ClusterState, *, is_counted: bool) -> None:
        kind, fields = state.line.get("type"), state.line.get("fields", {})
        for registered, nodes in (("broker", state.brokers), ("controller", state.controllers)):
            for node_id, node in nodes.items():
                if any(endpoint["securityProtocol"] in WITHOUT_TLS for endpoint in node["endPoints"]):
                    names["KB003"].add(f"{registered} {node_id}")
        self.has_broker = bool(state.brokers) or (is_counted and self.has_broker)
        if kind == "RegisterBrokerRecord":
            # The same process may register again, as after it was unregistered, with what is left to it.
            broker, log_dirs = (fields["brokerId"], fields["incarnationId"]), set(fields.get("logDirs") or ())
            if self.log_dirs.get(fields["brokerId"], set()) > log_dirs and broker in self.registered:
                names["KB010"].add(f"broker {fields['brokerId']}")
            self.registered.add(broker)
            self.log_dirs[fields["brokerId"]] = log_dirs
        elif kind == "BrokerRegistrationChangeRecord" and fields.get("logDirs"):
            if not self.log_dirs.get(fields["brokerId"], set()) <= set(fields["logDirs"]):
                names["KB010"].add(f"broker {fields['brokerId']}")
            self.log_dirs[fields["brokerId"]] = set(fields["logDirs"])
        elif kind == "RegisterControllerRecord":
            known = self.processes[fields["controllerId"]] if is_counted else set()
            self.processes[fields["controllerId"]] = {*known, fields["incarnationId"]}
        elif state.line["kind"] == "leader_epoch" and state.line["voters"] == [state.line["leader"]] and is_counted:
            self.sole_epochs[state.line["leader"]] += 1
        names["KB011"].clear()
        starts = max([*map(len, self.processes.values()), *self.sole_epochs.values()], default=0)
        if not self.has_broker and starts >= MIN_STARTS:
            names["KB011"].add("brokers")


def _is_storm(times: list[int], now_ms: int, limit: int) -> bool:
    times.append(now_ms)
    return len(times) > limit and now_ms - times[-1 - limit] <= HOUR_MS


class UncleanReturns:
    """Brokers that lose ISR or ELR in the operation of their own registration: they came back uncleanly.

    Unless the controller did not know yet that they had stopped cleanly: it fences them, which leaves them in ELRs.
    The engine says where its operations begin; the log does not, and a batch may hold neighbouring ones too.
    """

    def __init__(self) -> None:
        self.operation = -1
        self.lost: set[int] = set()

    def see(self, names: Names, state: ClusterState) -> None:
        if state.line.get("operation") != self.operation:
            self.operation, self.lost = state.line.get("operation", -1), set()
        for subject, before in state.before.items():
            if subject in state.partitions:
                now = state.partitions[subject]
                self.lost |= {*before["isr"], *before["elr"]} - {*now["isr"], *now["elr"]}
        if state.line.get("type") == "RegisterBrokerRecord" and state.features.get(ELR):
            broker_id = state.line["fields"]["brokerId"]
            is_eligible = any(broker_id in partition["elr"] for partition in state.partitions.values())
            if broker_id in self.lost and not is_eligible:
                names["KP008"].add(f"broker {broker_id}")


def _at_end(names: Names, state: ClusterState) -> None:
    _durability(names, state)
    racks = {broker_id: broker["rack"] for broker_id, broker in state.brokers.items() if broker.get("rack")}
    for subject, now in state.partitions.items():
        members = {*now["isr"], *now["elr"]}
        if {*now["replicas"]} - state.brokers.keys():
            names["KP021"].add(name_of(state, subject))
        has_choice = len(members) > 1 and len(set(racks.values())) > 1 and members <= racks.keys()
        if has_choice and len({racks[member] for member in members}) == 1:
            names["KP009"].add(name_of(state, subject))
    if state.features.get(METADATA_VERSION, 0) >= 23 and not state.features.get(ELR):
        names["KP018"].add(ELR)
    for acl_id, acl in state.acls.items():
        if (acl["principal"], acl["operation"], acl["permissionType"]) == ("User:*", 2, 3):
            names["KB004"].add(f"ACL {acl_id}")
    if state.features.get(ELR):
        if (BROKER, "", MIN_ISR) not in state.configs:
            names["KB005"].add("all brokers")
        own = [broker_id for kind, broker_id, key in state.configs if kind == BROKER and key == MIN_ISR]
        names["KB005"] |= {f"broker {broker_id}" for broker_id in own if broker_id}


def _durability(names: Names, state: ClusterState) -> None:
    for subject, now in state.partitions.items():
        count, wanted = len(now["replicas"]), state.min_isr(subject)
        conditions: tuple[bool, ...] = (count == 1, wanted == 1 and count >= 3, wanted == count and count > 1)
        if any(conditions):
            names["KP010"].add(f"topic {now['topic']}")
