"""`notify` over a lake: what is open is read, what is to be said is recorded, sent, and recorded as sent.

At least once: a message is recorded before it is sent, and again when it was taken. Of two calls at once one records
it, by a transaction that the other one then finds; the other leaves it alone. Where a call dies in between, the next
one after a while sends it again, under the same key.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from kraft_audit.findings.situation import EFFECT_OF_RULE
from kraft_audit.lake.delta import DeltaLake, sql_text
from kraft_audit.lake.gold.clusters_table import known_clusters
from kraft_audit.lake.lake import append_in_turn, require_lake
from kraft_audit.lake.ledger import READ_ROWS, Ledger, contract_schema
from kraft_audit.lake.ledger_state import InspectedCluster
from kraft_audit.lake.notices.message_senders import KIND_UNREAD, Message, MessageFacts, SendError, messages_to, send
from kraft_audit.lake.notices.notifications import (
    EVENT_RESOLVED,
    EVENTS_UNSENT,
    Event,
    OpenIncident,
    by_subject,
    hashed,
    new_events,
    pending_of,
    subjects_of,
)
from kraft_audit.lake.notices.notify_settings import NotifySettings, Target, routed
from kraft_audit.lake.progress import failpoint
from kraft_audit.lake.views import query_of
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.gold import FINDINGS, HISTORIES, INCIDENTS, LABELS, NOTIFICATIONS, SEVERITIES, SITUATIONS
from kraft_audit.text.page_names import incident_anchor
from kraft_audit.text.readable import plural, utc_time
from kraft_codec.errors import InputError, MissingPackageError

SEND_ATTEMPTS_MAX: Final = 2
ATTEMPT_AGAIN_S: Final = 1.0
_SCHEMA: Final = contract_schema(NOTIFICATIONS)
_OF_RULES: Final = """
SELECT cluster_id, rule, name, severity, moment, count(*) AS n, count(DISTINCT subject) AS subjects,
    min(summary) AS summary, min(from_ms) AS since_ms,
    CASE WHEN count(cause_id) = count(*) THEN min(cause_id) END AS cause_id
FROM (
    SELECT findings.*, CASE WHEN rule = 'KP020' THEN CAST(from_ms / 60000 AS BIGINT) ELSE 0 END AS moment, cause_id
    FROM findings LEFT JOIN (SELECT incident_id AS cause_id FROM incidents WHERE state = 'open') AS lasting
    ON cause_id = findings.incident_id
    WHERE findings.state = 'open'
) AS findings
WHERE rule = 'KP020' OR cause_id IS NULL
GROUP BY cluster_id, rule, name, severity, moment"""
"""Open findings that no open incident explains, by rule, and losses. What was lost outlasts the incident: each minute
in which records were lost is a subject of its own, so that people hear of the next loss although nobody acknowledged
the last."""


@dataclass(frozen=True, slots=True)
class OpenInLake:
    """The lake as its merged plans left it; `clusters` has the name and labels of each by its id."""

    open_incidents: tuple[OpenIncident, ...]
    read_plans: Mapping[str, int]
    merged: frozenset[str]
    clusters: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Sent:
    """A line about one event for one target: `stage` is sent, failed, or noted where no route takes it."""

    event: Event
    facts: MessageFacts
    target: str
    stage: str
    why: str | None = None

    @property
    def row(self) -> dict[str, Any]:
        """For programs: what was said, to whom, and how that went."""
        return {**self.facts.row(self.event), "target": self.target, "stage": self.stage, "why": self.why}


def open_in_lake(lake: DeltaLake) -> OpenInLake:
    """What is open now. Raises InputError where there is no lake, or no run has judged it yet."""
    require_lake(lake)
    if not lake.exists(INCIDENTS.name):
        raise InputError(lake.uri, "no table `incidents` yet: `kraft-audit run` makes it")
    ledger = Ledger(lake)
    closed = ledger.status().done
    is_merged = ledger.where_merged(INCIDENTS.name, closed)
    query = lake.queries(PLANS.name, INCIDENTS.name, FINDINGS.name, HISTORIES.name)
    incidents = list(map(_of_incident, query("SELECT * FROM incidents WHERE state = 'open'").to_pylist()))
    causes = {incident.incident_id: incident.subject_key for incident in incidents}
    incidents += [_of_rule(row, causes) for row in query(_OF_RULES).to_pylist()]
    incidents += [_of_unread(cluster) for cluster in ledger.unread().values()]
    read = query(
        "SELECT cluster_id, cluster_name, max(plan) AS newest FROM plans "  # noqa: S608
        f"WHERE {READ_ROWS} AND {is_merged} GROUP BY cluster_id, cluster_name"
    ).to_pylist()
    merged = query(
        f"SELECT history_id FROM ({query_of(HISTORIES.name, str, closed)}) AS known WHERE merged_into IS NOT NULL"  # noqa: S608
    )
    clusters = {
        id_: {"name": row["cluster_name"], "labels": {label: row[label] for label in LABELS if row[label] is not None}}
        for id_, row in known_clusters(lake).items()
    }
    plans: dict[str, int] = {}
    for row in read:
        # What could not be read has no id but the name in fleet.yaml.
        for key in (row["cluster_id"], row["cluster_name"]):
            plans[key] = max(row["newest"], plans.get(key, 0))
    for row in known_clusters(lake).values():
        clusters.setdefault(row["cluster_name"], clusters[row["cluster_id"]])
    return OpenInLake(tuple(incidents), plans, frozenset(merged["history_id"].to_pylist()), clusters)


def _of_incident(row: Mapping[str, Any]) -> OpenIncident:
    return OpenIncident(
        **{name: row[name] for name in ("incident_id", "cluster_id", "kind", "subject", "severity", "headline")},
        since_ms=row["from_ms"],
        until_ms=row["to_ms"],
        effects=tuple(row["effects"]),
        anchor=incident_anchor(row["incident_id"]),
    )


def _of_rule(row: Mapping[str, Any], causes: Mapping[str, str]) -> OpenIncident:
    rule, more = row["rule"], f" (and {row['n'] - 1} more)" if row["n"] > 1 else ""
    effect = f"{plural(row['subjects'], 'partition')} {EFFECT_OF_RULE[rule]}" if rule in EFFECT_OF_RULE else ""
    subject = f"{rule} {utc_time(row['moment'] * 60_000)}" if row["moment"] else rule
    return OpenIncident(
        hashed(row["cluster_id"], subject),
        row["cluster_id"],
        "rule",
        subject,
        row["severity"],
        f"{rule} {row['name']}: {row['summary']}{more}",
        row["since_ms"],
        effects=(effect,) if effect else (),
        anchor=f"rule-{rule}",
        cause_key=causes.get(row["cause_id"]),
    )


def _of_unread(cluster: InspectedCluster) -> OpenIncident:
    headline = f"could not be read, or only in part: {cluster.failure}"
    id_ = hashed(cluster.cluster_name, KIND_UNREAD)
    return OpenIncident(id_, cluster.cluster_name, KIND_UNREAD, "its copies", "high", headline, cluster.at_ms)


def _ended(lake: DeltaLake, events: Iterable[Event]) -> dict[str, OpenIncident]:
    """What the lake knows of the incidents of these events, by their subject."""
    by_incident = {event.incident_id: event.subject_key for event in events}
    listed = ", ".join(map(sql_text, by_incident))
    if not listed:
        return {}
    rows = lake.query(f"SELECT * FROM incidents WHERE incident_id IN ({listed})", INCIDENTS.name).to_pylist()  # noqa: S608
    return {by_incident[row["incident_id"]]: _of_incident(row) for row in rows}


_Claim = tuple[dict[str, list[Event]], list[Event]]
"""The events that each target is to get, and those that are only noted."""


class Notifier:
    """One call of `notify`."""

    def __init__(
        self,
        lake: DeltaLake,
        settings: NotifySettings,
        targets: Mapping[str, Target],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.lake = lake
        self.settings = settings
        self.targets = targets
        self.run = uuid.uuid4().hex
        self._clock_ms = clock_ms
        self._results = 0

    def notify(self, *, dry_run: bool = False) -> list[Sent]:
        """Say what is new, and what earlier calls left unsaid. Raises InputError."""
        open_now = open_in_lake(self.lake)
        if not dry_run:
            self.lake.create(NOTIFICATIONS.name, _SCHEMA, f"{NOTIFICATIONS.grain}. {NOTIFICATIONS.comment}")
        started_ms = self._clock_ms()
        claimed, noted = self._claim(open_now, is_dry=dry_run)
        failpoint("after-intent")
        facts = self._facts(open_now, [event for events in claimed.values() for event in events])
        shown = [Sent(event, facts, "", "noted") for event in noted if event.event not in EVENTS_UNSENT]
        for name, events in claimed.items():
            if name not in self.targets:
                shown += [Sent(event, facts, name, "failed", "notify.yaml has no such target") for event in events]
                continue
            target = self.targets[name]
            for message in messages_to(target, events, facts, self.settings.digest_above):
                if dry_run:
                    shown += [Sent(event, facts, name, "intent") for event in message.events]
                    continue
                # Another call may take over what this one did not send in its time.
                if self._clock_ms() - started_ms > self._wait_ms // 2:
                    return shown
                why = _attempt(target, message)
                failpoint("after-send")
                stage = "sent" if why is None else "failed"
                self._record([self._row(event, stage, name, why) for event in message.events])
                shown += [Sent(event, facts, name, stage, why) for event in message.events]
        return shown

    def _facts(self, open_now: OpenInLake, events: Sequence[Event]) -> MessageFacts:
        """What the messages about these events say beside them."""
        known = by_subject(open_now.open_incidents)
        known |= _ended(self.lake, (event for event in events if event.subject_key not in known))
        return MessageFacts(self.lake.uri, open_now.clusters, known, self._next_commands(), self.settings.report_url)

    def _next_commands(self) -> dict[str, str]:
        """What to run next in each cluster that needs something, by its id, as the last run summed it up."""
        if not self.lake.exists(SITUATIONS.name):
            return {}
        rows = self.lake.query("SELECT cluster_id, command FROM situations WHERE need IS NOT NULL", SITUATIONS.name)
        return {row["cluster_id"]: row["command"] for row in rows.to_pylist()}

    @property
    def _wait_ms(self) -> int:
        return self.settings.retry_after_minutes * 60_000

    def _claim(self, open_now: OpenInLake, *, is_dry: bool) -> _Claim:
        """Record what this call is to send: by target, and what is only noted. No other call sends it meanwhile."""
        if is_dry:
            there = self.lake.exists(NOTIFICATIONS.name)
            return self._to_claim(open_now, self._known_rows() if there else [])
        claims: list[_Claim] = []

        def rows_now() -> list[dict[str, Any]]:
            claims.append(self._to_claim(open_now, self._known_rows()))
            by_target, noted = claims[-1]
            intents = [self._row(event, "intent", target) for target, own in by_target.items() for event in own]
            return intents + [self._row(event, "noted", "") for event in noted]

        application = f"{Ledger(self.lake).application(NOTIFICATIONS.name)}/claims"
        append_in_turn(self.lake, NOTIFICATIONS.name, application, _SCHEMA, rows_now)
        return claims[-1]

    def _known_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.lake.query("SELECT * FROM notifications", NOTIFICATIONS.name).to_pylist()
        return rows

    def _to_claim(self, open_now: OpenInLake, rows: Sequence[Mapping[str, Any]]) -> _Claim:
        """What is to be said after the steps in `rows`, by target, and the events that no target gets."""
        now_ms = self._clock_ms()
        events = new_events(
            subjects_of(rows),
            open_now.open_incidents,
            open_now.read_plans,
            open_now.merged,
            now_ms,
            self.settings.severity,
        )
        claimed: dict[str, list[Event]] = defaultdict(list)
        for pending in pending_of(rows, now_ms, self._wait_ms):
            claimed[pending.target].append(pending.event)
        noted = []
        for event in events:
            targets = self._targets_of(event, open_now, rows)
            for target in targets:
                claimed[target].append(event)
            noted += [] if targets else [event]
        return claimed, noted

    def _targets_of(self, event: Event, open_now: OpenInLake, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        if event.event in EVENTS_UNSENT:
            return []
        if event.event == EVENT_RESOLVED:
            # Whoever heard of it hears that it is resolved, whatever the labels are by now.
            heard = [row["target"] for row in rows if row["incident_id"] == event.incident_id and row["target"]]
            return list(dict.fromkeys(heard))
        labels = open_now.clusters.get(event.cluster_id, {}).get("labels", {})
        return routed(self.settings, labels, event.severity)

    def _record(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._results += 1
        application = f"{Ledger(self.lake).application(NOTIFICATIONS.name)}/{self.run}"
        table = pa.Table.from_pylist([dict(row) for row in rows], _SCHEMA)
        self.lake.append_rows(NOTIFICATIONS.name, table, application, self._results)

    def _row(self, event: Event, stage: str, target: str, why: str | None = None) -> dict[str, Any]:
        about = {"stage": stage, "target": target, "at_ms": self._clock_ms(), "run": self.run, "why": why}
        return asdict(event) | about


def _attempt(target: Target, message: Message) -> str | None:
    """Send a message; why it could not be, None where it was."""
    why = None
    for attempt in range(SEND_ATTEMPTS_MAX):
        try:
            send(target, message)
        except SendError as problem:
            why = str(problem)
        except MissingPackageError as problem:
            return str(problem)
        else:
            return None
        if attempt + 1 < SEND_ATTEMPTS_MAX:
            time.sleep(ATTEMPT_AGAIN_S)
    return why


def summary_line(sent: Sequence[Sent]) -> str:
    """How many messages were sent, failed, or had no route."""
    counts = {stage: sum(each.stage == stage for each in sent) for stage in ("sent", "failed", "noted")}
    if not sent:
        return "nothing new to say"
    if unsent := sum(each.stage == "intent" for each in sent):
        return f"{plural(unsent, 'event')} would be sent"
    words = [plural(counts["sent"], "event") + " sent"]
    words += [f"{counts['failed']} failed, the next call tries again"] if counts["failed"] else []
    words += [f"{counts['noted']} that no route takes"] if counts["noted"] else []
    return ", ".join(words)


def worst_first(sent: Iterable[Sent]) -> list[Sent]:
    """For people."""
    return sorted(sent, key=lambda each: (SEVERITIES.index(each.event.severity), each.row["cluster"], each.event.n))
