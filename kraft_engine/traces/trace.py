"""A trace: the events of a quorum's run in their order, without clocks.

An event is a message that arrives, a timer that ends, or something from outside: a crash, a start, an append, a
voter change. Whatever a trace does not deliver is lost, and a timer that it does not end never does: both are
within Raft's model, so that leaving events out of a trace gives another legal run.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, fields, replace
from typing import Any

from kraft_engine.consensus import messages

EVENT_KINDS = (
    "deliver", "timeout", "retry", "resign", "give-up", "start", "stop", "crash", "die-in-next-write", "append",
    "add-voter", "remove-voter", "upgrade", "snapshot", "clean", "replace-disk", "ask",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event at node `node`.

    `source` and `message` are those of a delivered message. `number` is the count of an append, the log end that a
    crash leaves (-1: all of it), or the node id that a voter change names; `old_directory` says that it names that
    id's replaced disk. `asks` is the node that a replica without a leader asks next; `resends` are the nodes whose
    answers it has waited for long enough, `answers` those whose parked fetches it has held for long enough. `place`
    says which of several such messages it is, counted from the newest (-1: the newest), `correlation` the same in the
    recorded run; `again` that the message arrives a second time. `body` is a request that has no text of its own.
    `time_ms` is when it happened, for people.
    """

    kind: str
    node: int
    source: int = -1
    message: str = ""
    number: int = -1
    old_directory: bool = False
    asks: int = -1
    resends: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()
    place: int = -1
    correlation: int = 0
    again: bool = False
    body: Any = None
    time_ms: int = -1

    def text(self) -> str:
        """As a trace file has it: `deliver VoteRequest 1 -> 2`, `crash 2 keeping 17`, `add-voter 4 at 1`."""
        line = self._subject()
        if self.place > 0:
            line += f" place {self.place}"
        if self.again:
            line += " again"
        if self.asks >= 0:
            line += f" asking {self.asks}"
        for word, nodes in (("resending", self.resends), ("answering", self.answers)):
            if nodes:
                line += f" {word} {','.join(map(str, nodes))}"
        return line

    def _subject(self) -> str:
        if self.kind == "deliver":
            return f"deliver {self.message} {self.source} -> {self.node}"
        if self.kind in ("add-voter", "remove-voter"):
            return f"{self.kind} {self.number}{' (replaced disk)' if self.old_directory else ''} at {self.node}"
        if self.kind == "ask":
            values = [getattr(self.body, field.name) for field in fields(self.body)]
            return f"ask {self.node} {type(self.body).__name__}({', '.join(map(repr, values))})"
        line = f"{self.kind} {self.node}"
        if self.kind in ("crash", "die-in-next-write") and self.number >= 0:
            line += f" keeping {self.number}"
        elif self.kind == "append" and self.number > 1:
            line += f" records {self.number}"
        return line


EVENT = re.compile(
    r"(?:deliver (?P<message>\w+) (?P<source>\d+) -> (?P<receiver>\d+)"
    r"|(?P<change>add-voter|remove-voter) (?P<voter>\d+)(?P<old> \(replaced disk\))? at (?P<leader>\d+)"
    r"|(?P<kind>[a-z-]+) (?P<node>\d+)(?: (?:keeping|records) (?P<number>\d+))?)"
    r"(?: place (?P<place>\d+))?(?P<again> again)?(?: asking (?P<asks>\d+))?"
    r"(?: resending (?P<resends>[\d,]+))?(?: answering (?P<answers>[\d,]+))?"
)


def parse_event(text: str) -> TraceEvent:
    """The event that `TraceEvent.text` wrote. Raises ValueError where the text is no event."""
    if asked := ASK.fullmatch(text.strip()):
        return TraceEvent("ask", int(asked["node"]), body=_parse_body(asked["name"], asked["values"]))
    match = EVENT.fullmatch(text.strip())
    if match is None or (match["kind"] is not None and match["kind"] not in EVENT_KINDS):
        raise ValueError(f"expected an event such as `deliver VoteRequest 1 -> 2` or `crash 2`, got {text!r}")
    event = _parse_subject(match)
    return replace(
        event,
        asks=int(match["asks"] or -1),
        place=int(match["place"] or -1),
        again=match["again"] is not None,
        resends=_numbers(match["resends"]),
        answers=_numbers(match["answers"]),
    )


def _parse_body(name: str, values: str) -> Any:
    """A request as `TraceEvent.text` wrote it: a message's name, and the values of its fields as literals."""
    kind = getattr(messages, name, None)
    try:
        return kind(*ast.literal_eval(f"({values},)"))  # type: ignore[misc]
    except (TypeError, ValueError, SyntaxError) as error:
        raise ValueError(f"no request {name} has the values {values}") from error


ASK = re.compile(r"ask (?P<node>\d+) (?P<name>\w+)\((?P<values>.*)\)")


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number) if text else ()


def _parse_subject(match: re.Match[str]) -> TraceEvent:
    if match["message"]:
        return TraceEvent("deliver", int(match["receiver"]), int(match["source"]), match["message"])
    if match["change"]:
        is_old = match["old"] is not None
        return TraceEvent(match["change"], int(match["leader"]), number=int(match["voter"]), old_directory=is_old)
    number = int(match["number"]) if match["number"] else 1 if match["kind"] == "append" else -1
    return TraceEvent(match["kind"], int(match["node"]), number=number)


@dataclass(frozen=True, slots=True)
class Trace:
    """Events of one run of `scenario` (a random run of a quorum, or `model`), and the invariant that they break."""

    scenario: str
    seed: int
    without: tuple[str, ...]
    events: tuple[TraceEvent, ...]
    breaks: str = ""
    detail: str = ""
    quorum: tuple[tuple[str, Any], ...] = ()

    def with_events(self, events: tuple[TraceEvent, ...]) -> Trace:
        return replace(self, events=events)

    def text(self) -> str:
        """A YAML file that `simulate` plays."""
        lines = [f"# {self.breaks}: {self.detail}"] if self.breaks else []
        lines += [f"trace: {self.scenario}", f"seed: {self.seed}"]
        lines += [f"{key}: {str(value).lower()}" for key, value in self.quorum]
        if self.without:
            lines.append(f"without: [{', '.join(self.without)}]")
        if self.breaks:
            lines.append(f"breaks: {self.breaks}")
        texts = [event.text() for event in self.events]
        quoted = [json.dumps(text) if event.kind == "ask" else text
                  for text, event in zip(texts, self.events, strict=True)]  # fmt: skip
        return "\n".join([*lines, "events:", *(f"  - {text}" for text in quoted)]) + "\n"
