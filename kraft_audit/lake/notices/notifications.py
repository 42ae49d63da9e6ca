"""What `notify` has to say, from what it said before: opened, worse, reopened, resolved, each once for each subject.

A subject is (cluster, kind, subject) of an incident, or (cluster, rule) of open findings that no open incident
explains. It is resolved when two plans in turn read its cluster and did not find it; a cluster that is not read
resolves nothing. What comes back within six hours is the same incident.

A loss outlasts the incident that explains it, so it is a subject of its own. If the incident is said in the same call,
the loss is folded into that message, and said by itself once no open incident explains it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.tables.gold import SEVERITIES
from kraft_audit.text.readable import HOUR_MS

REOPENED_WITHIN_MS: Final = 6 * HOUR_MS
EVENT_OPENED: Final = "opened"
EVENT_WORSE: Final = "worse"
EVENT_REOPENED: Final = "reopened"
EVENT_RESOLVED: Final = "resolved"
EVENT_CLEAN: Final = "clean"
EVENT_UNCLEAN: Final = "unclean"
EVENT_FOLDED: Final = "folded"
EVENTS_NOTED: Final = (EVENT_CLEAN, EVENT_UNCLEAN)
"""Events that are only notes about the last one that was said."""
EVENTS_UNSENT: Final = (*EVENTS_NOTED, EVENT_FOLDED)
"""Events that are remembered and never sent."""


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """What is open in the lake now, by subject: the worst of the incidents that share one.

    `since_ms` and `until_ms` are when it began and ended, by the log's own time. `effects` are what it did to
    partitions, `anchor` is where it stands on its cluster's page, None where no page shows it. `cause_key` is the
    subject of the open incident that explains it.
    """

    incident_id: str
    cluster_id: str
    kind: str
    subject: str
    severity: str
    headline: str
    since_ms: int | None = None
    until_ms: int | None = None
    effects: tuple[str, ...] = ()
    anchor: str | None = None
    cause_key: str | None = None

    @property
    def subject_key(self) -> str:
        return hashed(self.cluster_id, self.kind, self.subject)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing to say, or to remember. (incident_id, event, n) names it for ever."""

    incident_id: str
    event: str
    n: int
    subject_key: str
    cluster_id: str
    severity: str
    headline: str
    plan: int

    @property
    def key(self) -> str:
        return f"{self.incident_id}/{self.event}/{self.n}"


@dataclass(frozen=True, slots=True)
class Subject:
    """What was said of a subject: its last event that was more than a note, and the note after it if there is one."""

    last: Event
    at_ms: int
    note: Event | None = None

    @property
    def next_n(self) -> int:
        return (self.note or self.last).n + 1


def hashed(*parts: str) -> str:
    """A short name of some texts."""
    text = "\0".join(parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def subjects_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Subject]:
    """What the table `notifications` says of each subject, by its key."""
    events: dict[str, dict[int, tuple[Event, int]]] = defaultdict(dict)
    for row in rows:
        known = events[row["subject_key"]].get(row["n"])
        at_ms = row["at_ms"] if known is None else min(row["at_ms"], known[1])
        events[row["subject_key"]][row["n"]] = (event_of(row), at_ms)
    subjects = {}
    for key, numbered in events.items():
        ordered = [numbered[n] for n in sorted(numbered)]
        said = [(event, at_ms) for event, at_ms in ordered if event.event not in EVENTS_NOTED]
        newest = ordered[-1][0]
        if said:
            subjects[key] = Subject(said[-1][0], said[-1][1], newest if newest.event in EVENTS_NOTED else None)
    return subjects


def event_of(row: Mapping[str, Any]) -> Event:
    """The event of a row of the table."""
    return Event(**{name: row[name] for name in Event.__dataclass_fields__})


def new_events(
    subjects: Mapping[str, Subject],
    open_incidents: Sequence[OpenIncident],
    read_plans: Mapping[str, int],
    merged: Iterable[str],
    now_ms: int,
    least: str,
) -> list[Event]:
    """The events since the last call: those of open incidents first, the worst first, then what is resolved.

    `read_plans` has the newest plan that read each cluster, `merged` are clusters whose history proved to be another.
    `least` is the severity from which on an incident is opened; one that was said to be open stays so below it.
    """
    gone = frozenset(merged)
    events: list[Event] = []
    still_open = by_subject(open_incidents)
    said: set[str] = set()
    for key, incident in sorted(still_open.items(), key=lambda item: item[1].cause_key is not None):
        plan = read_plans.get(incident.cluster_id, 0)
        event = _of_open(subjects.get(key), incident, plan, now_ms, least, is_said=incident.cause_key in said)
        if event is not None:
            events.append(event)
            said |= {key} if event.event not in EVENTS_UNSENT else set()
    events.sort(key=lambda event: (SEVERITIES.index(event.severity), event.cluster_id, event.incident_id))
    for key, subject in sorted(subjects.items()):
        if key not in still_open and subject.last.event != EVENT_RESOLVED:
            plan = read_plans.get(subject.last.cluster_id, 0)
            event = _of_clean(subject, plan, is_merged=subject.last.cluster_id in gone)
            events += [] if event is None else [event]
    return events


def by_subject(incidents: Sequence[OpenIncident]) -> dict[str, OpenIncident]:
    """The worst open incident of each subject, of several the first by id."""
    incident_by_subject: dict[str, OpenIncident] = {}
    for incident in sorted(incidents, key=lambda each: (SEVERITIES.index(each.severity), each.incident_id)):
        incident_by_subject.setdefault(incident.subject_key, incident)
    return incident_by_subject


def _of_open(
    before: Subject | None, incident: OpenIncident, plan: int, now_ms: int, least: str, *, is_said: bool
) -> Event | None:
    """The event of an open incident, if there is one; `is_said`: the message about its cause says it in this call."""
    rank, known = SEVERITIES.index(incident.severity), None
    is_folded = before is not None and before.last.event == EVENT_FOLDED
    if before is None or before.last.event == EVENT_RESOLVED or (is_folded and incident.cause_key is None):
        if rank > SEVERITIES.index(least):
            return None
        is_same = before is not None and not is_folded and now_ms - before.at_ms <= REOPENED_WITHIN_MS
        known = EVENT_FOLDED if is_said else EVENT_REOPENED if is_same else EVENT_OPENED
    elif rank < SEVERITIES.index(before.last.severity) and not is_folded:
        known = EVENT_WORSE
    elif before.note is not None and before.note.event == EVENT_CLEAN:
        known = EVENT_UNCLEAN
    if known is None:
        return None
    # An incident keeps its name while it lasts, whichever of the lake's incidents shows it now.
    incident_id = (
        incident.incident_id if before is None or known in (EVENT_OPENED, EVENT_FOLDED) else before.last.incident_id
    )
    return Event(
        incident_id,
        known,
        1 if before is None else before.next_n,
        incident.subject_key,
        incident.cluster_id,
        incident.severity,
        incident.headline,
        plan,
    )


def _of_clean(before: Subject, plan: int, *, is_merged: bool) -> Event | None:
    last = before.last
    is_clean_before = before.note is not None and before.note.event == EVENT_CLEAN
    if is_merged or (is_clean_before and before.note is not None and plan > before.note.plan):
        event = EVENT_RESOLVED
    elif not is_clean_before and plan > last.plan:
        event = EVENT_CLEAN
    else:
        return None
    return Event(
        last.incident_id,
        event,
        before.next_n,
        last.subject_key,
        last.cluster_id,
        last.severity,
        last.headline,
        plan,
    )


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that was to be sent, without a row that says it was."""

    event: Event
    target: str


def pending_of(rows: Sequence[Mapping[str, Any]], now_ms: int, wait_ms: int) -> list[Pending]:
    """The messages to send again: those that failed, and those whose sender said nothing more for `wait_ms`."""
    steps: dict[tuple[str, int, str], dict[str, dict[str, Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row["target"]:
            steps[row["subject_key"], row["n"], row["target"]][row["stage"]][row["run"]] = row
    messages = []
    for _, stages in sorted(steps.items()):
        intents = stages["intent"]
        under_way = [row for run, row in intents.items() if run not in stages["failed"]]
        if not stages["sent"] and all(now_ms - row["at_ms"] >= wait_ms for row in under_way):
            row = next(iter(intents.values()))
            messages.append(Pending(event_of(row), row["target"]))
    return messages
