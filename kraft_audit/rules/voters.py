"""Rules about the voter set as it stands: how many faults it survives, and whether its voters are who they seem."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from kraft_audit.rules.canonical import log_batches, newest_watermark
from kraft_audit.rules.captured import (
    capture_evidence,
    captures_in_order,
    moments,
    newest_captures,
    replica_end,
    replica_name,
)
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.majorities import majority_size
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Threshold, Thresholds, undecided
from kraft_audit.rules.registry import rule
from kraft_audit.rules.voter_view import (
    canonical_sets,
    current_set,
    ids_of,
    keys_of,
    named,
    set_at,
    uncommitted_at_end,
)


def _set_evidence(row: dict[str, Any]) -> Evidence:
    voters = named(keys_of(row["voters"]))
    return Evidence(
        f"voter set {voters} from {row['source']}, offset {row['from_offset']}",
        offset=row["from_offset"],
        epoch=row["from_epoch"],
        timestamp_ms=row["timestamp_ms"],
    )


@rule(
    "KV005", "uncommitted-voter-set-in-use", Severity.HIGH, Scope.VOTERS, needs=("captures", "voter_sets", "watermarks")
)
def kv005(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    log_sets = [row for row in history.rows("voter_sets") if row["source"] == "log"]
    last = max(canonical_sets(history), key=lambda row: row["from_offset"], default=None)
    for row in log_sets:
        if row["canonical"] and (row is not last or not (row["added"] or row["removed"])):
            continue
        place = (row["from_offset"], row["from_epoch"])
        holders = [
            capture
            for capture in captures_in_order(history)
            if (capture["log_end_offset"] or 0) > row["from_offset"] and _holds_epoch(history, capture, *place)
        ]
        if not holders:
            continue
        is_uncommitted = (
            uncommitted_at_end(history, row["from_offset"]) if row["canonical"] else _was_seen_open(history, row)
        )
        subject = f"voter set at offset {row['from_offset']}, epoch {row['from_epoch']}"
        where = {"from_offset": row["from_offset"], "from_ms": row["timestamp_ms"], "epoch": row["from_epoch"]}
        if is_uncommitted:
            nodes = sorted({replica_name(capture) for capture in holders})
            yield Case(
                subject,
                f"{named(keys_of(row['voters']))} is in use on {', '.join(nodes)} and was not committed",
                evidence=(
                    _set_evidence(row),
                    *(capture_evidence(c, f"{replica_name(c)} held it") for c in holders[:5]),
                ),
                is_over=not any(_holds_epoch(history, c, *place) for c in newest_captures(history)),
                **where,
            )
        elif is_uncommitted is None and row["canonical"]:
            yield undecided(subject, "the captures do not tell whether it is committed", **where)


def _was_seen_open(history: ClusterHistory, row: dict[str, Any]) -> bool:
    """A set on another branch was in use without being committed, unless a low ever covered it with that epoch."""
    return not any(
        w["low"] > row["from_offset"] and w["low_epoch"] == row["from_epoch"] for w in history.rows("watermarks")
    )


def _holds_epoch(history: ClusterHistory, capture: dict[str, Any], offset: int, epoch: int) -> bool:
    """Whether that replica, as captured, held the record at `offset` as written in `epoch`."""
    batches = log_batches(history)
    mask = (batches.base_offset <= offset) & (batches.last_offset >= offset) & (batches.leader_epoch == epoch)
    return bool((mask & batches.held_by(capture)).any())


_NO_FAULT: Final = "With one or two voters any single fault stops the quorum or loses it."
_EVEN_COUNT: Final = "An even count survives no more faults than one voter less."
_MAKE_IT_ODD: Final = "Add a controller, which survives one more fault, or remove one, which survives as many."


@rule("KV007", "fragile-voter-count", Severity.HIGH, Scope.VOTERS, needs=("voter_sets",))
def kv007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    rows = canonical_sets(history)
    if not rows:
        return
    counts = [len(row["voters"]) for row in rows]
    count = counts[-1]
    if count > 2 and count % 2:
        return
    first = len(rows) - 1
    while first and counts[first - 1] == count:
        first -= 1
    faults = count - majority_size(count)
    if count <= 2:
        summary = f"{count} voter{'s' if count > 1 else ''}: no fault is survived"
    else:
        summary = f"{count} voters survive {faults} fault{'s' if faults > 1 else ''}, as {count - 1} would"
    yield Case(
        "voters",
        summary,
        from_offset=rows[first]["from_offset"],
        from_ms=rows[first]["timestamp_ms"],
        severity=Severity.HIGH if count <= 2 else Severity.MEDIUM,
        evidence=(_set_evidence(rows[-1]),),
        why=_NO_FAULT if count <= 2 else _EVEN_COUNT,
        what_to_do=None if count <= 2 else _MAKE_IT_ODD,
    )


@rule("KV008", "phantom-voter", Severity.CRITICAL, Scope.VOTERS, needs=("captures", "voter_sets"))
def kv008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    open_cases: dict[tuple[int, str], Case] = {}
    for taken, newest in moments(history):
        end = max((replica_end(row) for row in taken), default=0)
        voter_set = set_at(history, end - 1)
        phantoms: dict[tuple[int, str], Any] = {}
        for voter_id, directory_id in sorted(keys_of(voter_set["voters"]) if voter_set else (), key=str):
            mine = [row for row in newest if row["node_id"] == voter_id and row["directory_id"] is not None]
            if directory_id is not None and mine and all(row["directory_id"] != directory_id for row in mine):
                phantoms[voter_id, directory_id] = mine[0]
        for key in [key for key in open_cases if key not in phantoms]:
            case = open_cases.pop(key)
            yield case._replace(to_ms=_last_ms(taken), is_over=True)
        for (voter_id, directory_id), row in phantoms.items():
            if (voter_id, directory_id) not in open_cases and voter_set is not None:
                open_cases[voter_id, directory_id] = Case(
                    f"voter {voter_id}",
                    f"voter {voter_id} is {directory_id}, but node {voter_id}'s disk is {row['directory_id']}",
                    from_offset=voter_set["from_offset"],
                    from_ms=voter_set["timestamp_ms"],
                    evidence=(
                        _set_evidence(voter_set),
                        capture_evidence(
                            row,
                            f"meta.properties of node {voter_id} names another directory",
                            file_name="meta.properties",
                            before=directory_id,
                            after=row["directory_id"],
                        ),
                    ),
                )
    yield from open_cases.values()


def _last_ms(captures: list[dict[str, Any]]) -> int | None:
    """The newest append time in some captures: copies are made later than what they show."""
    return max((row["last_timestamp_ms"] for row in captures if row["last_timestamp_ms"] is not None), default=None)


@rule("KV009", "endpoint-drift", Severity.MEDIUM, Scope.VOTERS, needs=("voter_sets", "controller_changes"))
def kv009(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    voter_set = current_set(history)
    if voter_set is None:
        return
    registered = _registered_controllers(history)
    hosts = {endpoint["host"] for voter in voter_set["voters"] for endpoint in voter["endpoints"]}
    for voter in voter_set["voters"]:
        subject = f"voter {voter['voter_id']}"
        where = {"from_offset": voter_set["from_offset"], "from_ms": voter_set["timestamp_ms"]}
        known = {e["name"]: (e["host"], e["port"]) for e in registered.get(voter["voter_id"], [])}
        for endpoint in voter["endpoints"]:
            mine = (endpoint["host"], endpoint["port"])
            theirs = known.get(endpoint["name"], mine)
            if theirs != mine:
                yield Case(
                    subject,
                    f"the voter set says {mine[0]}:{mine[1]}, the registration {theirs[0]}:{theirs[1]}",
                    evidence=(
                        Evidence(
                            f"listener {endpoint['name']}",
                            offset=voter_set["from_offset"],
                            before=f"{theirs[0]}:{theirs[1]}",
                            after=f"{mine[0]}:{mine[1]}",
                        ),
                    ),
                    **where,
                )
            elif len(hosts) > 1 and _is_local(endpoint["host"]):
                summary = f"{endpoint['host']} cannot be reached from the other voters' hosts"
                yield Case(subject, summary, evidence=(_set_evidence(voter_set),), **where)


def _registered_controllers(history: ClusterHistory) -> dict[int, list[dict[str, Any]]]:
    newest: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(history.rows("controller_changes"), key=lambda row: row["from_offset"]):
        newest[row["controller_id"]] = row["end_points"] if row["exists"] else []
    return newest


def _is_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


@rule("KV011", "static-voters", Severity.LOW, Scope.VOTERS, needs=("voter_sets",))
def kv011(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    voter_set = current_set(history)
    if voter_set is not None and voter_set["kraft_version"] == 0 and history.dialect == "kip853":
        summary = "kraft.version 0: voters come from each node's own file, and no change of them is safe"
        yield Case("voters", summary, from_offset=voter_set["from_offset"], evidence=(_set_evidence(voter_set),))


@rule("KV012", "split-quorum", Severity.CRITICAL, Scope.VOTERS, needs=("voter_sets",))
def kv012(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    first_sets = [row for row in history.rows("voter_sets") if row["source"] == "bootstrap"]
    different = {keys_of(row["voters"]): row for row in first_sets}
    if len(different) > 1:
        texts = " and ".join(named(keys) for keys in sorted(different, key=str))
        yield Case(
            "bootstrap voters",
            f"one cluster id, {len(different)} first voter sets: {texts}",
            from_offset=-1,
            evidence=tuple(_set_evidence(row) for row in different.values()),
        )


@rule(
    "KV013",
    "voter-behind",
    Severity.MEDIUM,
    Scope.VOTERS,
    needs=("captures", "voter_sets", "watermarks"),
    thresholds=(Threshold("max_lag_records", 1_000, "how far a voter's log may end behind what is committed"),),
)
def kv013(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    newest, voter_set = newest_watermark(history), current_set(history)
    if newest is None or voter_set is None:
        return
    by_key = _captured_voters(history, voter_set)
    for voter_id, directory_id in sorted(keys_of(voter_set["voters"]), key=str):
        row = by_key.get((voter_id, directory_id))
        subject = f"voter {voter_id}"
        if row is None:
            yield undecided(subject, f"voter {voter_id} was not captured")
            continue
        lag = newest["low"] - replica_end(row)
        if lag > int(thresholds["max_lag_records"]):
            yield Case(
                subject,
                f"ends at {replica_end(row)}, {lag} records behind what is committed ({newest['low']})",
                from_offset=replica_end(row),
                from_ms=row["last_timestamp_ms"],
                evidence=(capture_evidence(row, f"log end {row['log_end_offset']}", offset=row["log_end_offset"]),),
            )


def _captured_voters(
    history: ClusterHistory, voter_set: dict[str, Any]
) -> dict[tuple[int, str | None], dict[str, Any]]:
    """The newest capture of each voter of a set: by id and directory, by id alone where either is unknown."""
    found = {}
    for row in newest_captures(history):
        for voter_id, directory_id in keys_of(voter_set["voters"]):
            same = directory_id is None or row["directory_id"] in (None, directory_id)
            if row["node_id"] == voter_id and same:
                found[voter_id, directory_id] = row
    return found


@rule(
    "KV014",
    "quorum-one-fault-from-loss",
    Severity.HIGH,
    Scope.VOTERS,
    needs=("captures", "voter_sets", "watermarks"),
    thresholds=(Threshold("max_lag_records", 1_000, "a voter within this many records of the committed end counts"),),
)
def kv014(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    newest, voter_set = newest_watermark(history), current_set(history)
    if newest is None or voter_set is None or len(voter_set["voters"]) < 3:
        return
    by_key = _captured_voters(history, voter_set)
    missing = sorted(id_ for id_, _ in keys_of(voter_set["voters"]) - by_key.keys())
    if missing:
        yield undecided("voters", f"voters {missing} were not captured")
        return
    close = {
        key for key, row in by_key.items() if newest["low"] - replica_end(row) <= int(thresholds["max_lag_records"])
    }
    if len(close) == majority_size(len(by_key)):
        yield Case(
            "voters",
            f"only {named(close)} of {named(set(by_key))} are near the committed end {newest['low']}: "
            "one more fault stops the quorum",
            from_offset=min(replica_end(row) for key, row in by_key.items() if key not in close),
            evidence=tuple(
                capture_evidence(row, f"{replica_name(row)} ends at {replica_end(row)}", offset=replica_end(row))
                for row in by_key.values()
            ),
        )


@rule("KV016", "ghost-controller", Severity.LOW, Scope.VOTERS, needs=("captures", "voter_sets", "controller_changes"))
def kv016(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    voter_set = current_set(history)
    known = ids_of(keys_of(voter_set["voters"])) if voter_set else frozenset()
    captured = {row["node_id"] for row in history.rows("captures")}
    newest: dict[int, dict[str, Any]] = {}
    for row in sorted(history.rows("controller_changes"), key=lambda row: row["from_offset"]):
        newest[row["controller_id"]] = row
    for controller_id, row in sorted(newest.items()):
        if row["exists"] and controller_id not in known and controller_id not in captured:
            yield Case(
                f"controller {controller_id}",
                f"controller {controller_id} is registered, is no voter and was not captured",
                from_offset=row["from_offset"],
                from_ms=row["timestamp_ms"],
                epoch=row["from_epoch"],
                evidence=(Evidence("its registration", offset=row["from_offset"], timestamp_ms=row["timestamp_ms"]),),
            )
