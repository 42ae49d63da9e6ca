"""One message to one target: JSON to a webhook, an event to PagerDuty, a text by Apprise.

A message is sent when the target took it. What it answers, and its address, are never repeated: they hold secrets.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from importlib import import_module
from importlib.util import find_spec
from typing import IO, Any, Final

from kraft_audit.lake.notices.notifications import EVENT_RESOLVED, Event, OpenIncident, hashed
from kraft_audit.lake.notices.notify_settings import Target
from kraft_audit.tables.gold import SEVERITIES
from kraft_audit.text.page_names import FLEET_PAGE, page_of
from kraft_audit.text.readable import moment_of, plural, utc_time, when
from kraft_codec.errors import MissingPackageError

TIMEOUT_S: Final = 10
SHOWN_IN_TEXT: Final = 20
KIND_UNREAD: Final = "unread"
"""The kind of incident that a cluster is which could not be read."""
PAGERDUTY_SEVERITIES: Final = {"critical": "critical", "high": "error", "medium": "warning", "low": "info"}


class SendError(Exception):
    """A target that did not take a message; the text names no address."""


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What messages say beside their events.

    `clusters` has the name and labels of each cluster by its id, `incidents` what is known of each subject by its key,
    `commands` what to run next by cluster id. `report_url` is where the pages are served.
    """

    lake: str
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    incidents: Mapping[str, OpenIncident] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    report_url: str | None = None

    def name(self, event: Event) -> str:
        return str(self.clusters.get(event.cluster_id, {}).get("name") or event.cluster_id)

    def link(self, event: Event) -> str | None:
        """The address of what an event is about: its incident on the page of its cluster."""
        if self.report_url is None:
            return None
        if event.incident_id == hashed(event.cluster_id, KIND_UNREAD):  # a cluster without a page of its own
            return f"{self.report_url.rstrip('/')}/{FLEET_PAGE}"
        incident = self.incidents.get(event.subject_key)
        anchor = f"#{incident.anchor}" if incident is not None and incident.anchor else ""
        return f"{self.report_url.rstrip('/')}/{page_of(event.cluster_id)}{anchor}"

    def row(self, event: Event) -> dict[str, Any]:
        """What programs get of an event. Times are the log's own, UTC."""
        cluster = self.clusters.get(event.cluster_id, {})
        incident = self.incidents.get(event.subject_key)
        since_ms, until_ms = (None, None) if incident is None else (incident.since_ms, incident.until_ms)
        return {
            "key": event.key,
            "incident_id": event.incident_id,
            "event": event.event,
            "n": event.n,
            "severity": event.severity,
            "cluster": self.name(event),
            "cluster_id": event.cluster_id,
            "labels": dict(cluster.get("labels", {})),
            "headline": event.headline,
            "since": None if since_ms is None else utc_time(since_ms),
            "until": None if until_ms is None else utc_time(until_ms),
            "effects": [] if incident is None else list(incident.effects),
            "next": None if event.event == EVENT_RESOLVED else self.commands.get(event.cluster_id),
            "link": self.link(event),
        }

    def lines(self, event: Event) -> list[str]:
        """What people get of an event."""
        row, incident = self.row(event), self.incidents.get(event.subject_key)
        lines = [f"{event.event}, {event.severity}: {row['cluster']}: {event.headline}"]
        if incident is not None and incident.since_ms is not None:
            since, until_ms = when(incident.since_ms), incident.until_ms
            ended = "" if until_ms is None else when(until_ms, incident.since_ms)
            lines.append(f"From {since} to {ended} UTC" if ended else f"Since {since} UTC")
        lines += [f"Effect: {'; '.join(row['effects'])}"] if row["effects"] else []
        lines += [f"Next: {row['next']}"] if row["next"] else []
        return [*lines, *([row["link"]] if row["link"] else [])]


@dataclass(frozen=True, slots=True)
class Message:
    """One event, or a digest of several."""

    events: tuple[Event, ...]
    facts: MessageFacts
    is_digest: bool = False

    @property
    def key(self) -> str:
        """The same for the same events, whoever sends them."""
        return f"digest/{hashed(*sorted(event.key for event in self.events))}" if self.is_digest else self.events[0].key

    @property
    def severity(self) -> str:
        return min((event.severity for event in self.events), key=SEVERITIES.index)

    @property
    def title(self) -> str:
        if not self.is_digest:
            (event,) = self.events
            return f"{self.facts.name(event)}: {event.event}: {event.headline}"
        counts = [(word, sum(event.event == word for event in self.events)) for word in ("opened", "worse", "reopened")]
        counts.append((EVENT_RESOLVED, sum(event.event == EVENT_RESOLVED for event in self.events)))
        clusters = plural(len({event.cluster_id for event in self.events}), "cluster")
        return f"{clusters}: {', '.join(f'{count} {word}' for word, count in counts if count)}"

    @property
    def text(self) -> str:
        """For people: of one event all that is known, of a digest a line for each."""
        if not self.is_digest:
            return "\n".join([*self.facts.lines(self.events[0]), "", f"[{self.key}]"])
        lines = [self.facts.lines(event)[0] for event in self.events[:SHOWN_IN_TEXT]]
        if len(self.events) > SHOWN_IN_TEXT:
            lines.append(
                f"and {len(self.events) - SHOWN_IN_TEXT} more: kraft-audit report {self.facts.lake} --out site"
            )
        lines += [] if self.facts.report_url is None else [f"{self.facts.report_url.rstrip('/')}/{FLEET_PAGE}"]
        return "\n".join([*lines, "", f"[{self.key}]"])

    def document(self) -> dict[str, Any]:
        """For programs: of one event its fields, of a digest the list of them."""
        rows = [self.facts.row(event) for event in self.events]
        if not self.is_digest:
            return {**rows[0], "lake": self.facts.lake}
        return {"key": self.key, "event": "digest", "title": self.title, "lake": self.facts.lake, "incidents": rows}


def send(target: Target, message: Message) -> None:
    """Send one message. Raises SendError, MissingPackageError."""
    if target.kind == "webhook":
        _post(target.address, message.document(), message.key)
    elif target.kind == "pagerduty":
        _post(target.address, pagerduty_event(target.routing_key, message), message.key)
    else:
        _by_apprise(target.address, message)


def pagerduty_event(routing_key: str, message: Message) -> dict[str, Any]:
    """The body of Events API v2: alerts of one incident have one dedup_key, so that a repeated message adds none."""
    event = message.events[0]
    is_resolved = not message.is_digest and event.event == EVENT_RESOLVED
    body: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": "resolve" if is_resolved else "trigger",
        "dedup_key": message.key if message.is_digest else event.incident_id,
    }
    if is_resolved:
        return body
    payload = {
        "summary": message.title[:1024],
        "source": "kraft-audit" if message.is_digest else message.facts.name(event),
        "severity": PAGERDUTY_SEVERITIES[message.severity],
        "custom_details": message.document(),
    }
    incident = None if message.is_digest else message.facts.incidents.get(event.subject_key)
    if incident is not None and incident.since_ms is not None and moment_of(incident.since_ms) is not None:
        payload["timestamp"] = utc_time(incident.since_ms)
    link = None if message.is_digest else message.facts.link(event)
    links = {} if link is None else {"links": [{"href": link, "text": "The incident on its cluster's page"}]}
    return {**body, "payload": payload, **links}


def messages_to(target: Target, events: Sequence[Event], facts: MessageFacts, digest_above: int) -> list[Message]:
    """One message for each event, or one for all of them where they are too many.

    PagerDuty keeps an alert open until its own resolve event comes: those are never joined.
    """
    joined = [event for event in events if target.kind != "pagerduty" or event.event != EVENT_RESOLVED]
    if len(joined) <= digest_above:
        return [Message((event,), facts) for event in events]
    single = [event for event in events if event not in joined]
    return [Message(tuple(joined), facts, is_digest=True), *(Message((event,), facts) for event in single)]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send a secret elsewhere."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def _post(address: str, document: Mapping[str, Any], key: str) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "kraft-audit"}
    try:
        request = urllib.request.Request(address, json.dumps(document).encode(), headers)  # noqa: S310  # http(s) alone
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S) as answer:
            status = answer.status
    except urllib.error.HTTPError as problem:
        status = problem.code
        problem.close()
    except (OSError, HTTPException, ValueError) as problem:
        raise SendError(_reason(problem)) from None
    if not 200 <= status < 300:
        raise SendError(f"it answered with status {status}")


def _reason(problem: Exception) -> str:
    inner = getattr(problem, "reason", problem)
    return str(getattr(inner, "strerror", None) or type(inner).__name__)


def _by_apprise(address: str, message: Message) -> None:
    if find_spec("apprise") is None:
        raise MissingPackageError("a target of kind apprise needs apprise", "notify")
    apprise: Any = import_module("apprise")
    kind = "success" if all(event.event == EVENT_RESOLVED for event in message.events) else "warning"
    sender = apprise.Apprise()
    if not sender.add(address):
        raise SendError("Apprise does not know such an address")
    if not sender.notify(body=message.text, title=message.title, notify_type=kind):
        raise SendError("Apprise could not deliver it")
