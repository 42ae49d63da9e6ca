"""One message to one target: JSON to a webhook, an event to PagerDuty, a text by Apprise.

A message is sent when the target took it. What it answers, and its address, are never repeated: they hold secrets.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from importlib import import_module
from importlib.util import find_spec
from typing import IO, Any, Final

from kraft_audit.lake.notices.notifications import EVENT_RESOLVED, Event, hashed
from kraft_audit.lake.notices.notify_settings import Target
from kraft_audit.tables.gold import SEVERITIES
from kraft_audit.text.readable import plural
from kraft_codec.errors import MissingPackageError

TIMEOUT_S: Final = 10
SHOWN_IN_TEXT: Final = 20
PAGERDUTY_SEVERITIES: Final = {"critical": "critical", "high": "error", "medium": "warning", "low": "info"}


class SendError(Exception):
    """A target that did not take a message; the text names no address."""


@dataclass(frozen=True, slots=True)
class Message:
    """One event, or a digest of several. `clusters` has the name and labels of each cluster by its id."""

    events: tuple[Event, ...]
    clusters: Mapping[str, Mapping[str, Any]]
    lake: str
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
            return f"{self._name(event)}: {event.event}: {event.headline}"
        counts = [(word, sum(event.event == word for event in self.events)) for word in ("opened", "worse", "reopened")]
        counts.append((EVENT_RESOLVED, sum(event.event == EVENT_RESOLVED for event in self.events)))
        clusters = plural(len({event.cluster_id for event in self.events}), "cluster")
        return f"{clusters}: {', '.join(f'{count} {word}' for word, count in counts if count)}"

    @property
    def text(self) -> str:
        """For people."""
        lines = [
            f"{event.event}, {event.severity}: {self._name(event)}: {event.headline}"
            for event in self.events[:SHOWN_IN_TEXT]
        ]
        if len(self.events) > SHOWN_IN_TEXT:
            lines.append(f"and {len(self.events) - SHOWN_IN_TEXT} more: kraft-audit report {self.lake} --out site")
        return "\n".join([*lines, f"[{self.key}]"])

    def document(self) -> dict[str, Any]:
        """For programs: of one event its fields, of a digest the list of them."""
        rows = [self._row(event) for event in self.events]
        if not self.is_digest:
            return {**rows[0], "lake": self.lake}
        return {"key": self.key, "event": "digest", "title": self.title, "lake": self.lake, "incidents": rows}

    def _name(self, event: Event) -> str:
        return str(self.clusters.get(event.cluster_id, {}).get("name") or event.cluster_id)

    def _row(self, event: Event) -> dict[str, Any]:
        cluster = self.clusters.get(event.cluster_id, {})
        return {
            "key": event.key,
            "incident_id": event.incident_id,
            "event": event.event,
            "n": event.n,
            "severity": event.severity,
            "cluster": self._name(event),
            "cluster_id": event.cluster_id,
            "labels": dict(cluster.get("labels", {})),
            "headline": event.headline,
        }


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
    source = "kraft-audit" if message.is_digest else message.document()["cluster"]
    payload = {
        "summary": message.title[:1024],
        "source": source,
        "severity": PAGERDUTY_SEVERITIES[message.severity],
        "custom_details": message.document(),
    }
    return {**body, "payload": payload}


def messages_to(
    target: Target, events: Sequence[Event], clusters: Mapping[str, Mapping[str, Any]], lake: str, digest_above: int
) -> list[Message]:
    """One message for each event, or one for all of them where they are too many.

    PagerDuty keeps an alert open until its own resolve event comes: those are never joined.
    """
    joined = [event for event in events if target.kind != "pagerduty" or event.event != EVENT_RESOLVED]
    if len(joined) <= digest_above:
        return [Message((event,), clusters, lake) for event in events]
    single = [event for event in events if event not in joined]
    return [
        Message(tuple(joined), clusters, lake, is_digest=True),
        *(Message((event,), clusters, lake) for event in single),
    ]


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
