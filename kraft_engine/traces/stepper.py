"""Steps through a trace, back and forth, and lets somebody else decide how it goes on. No terminal is needed."""

from __future__ import annotations

from kraft_engine.traces.diagram import sentence
from kraft_engine.traces.playback import Frame, NodeView, Playback
from kraft_engine.traces.trace import Trace, TraceEvent

HELP = "space/right: next  left: back  home/end  up/down: choose  enter: do it  c: crash/start  x: cut/heal  q: quit"
HISTORY_LINES = 8


class Stepper:
    """A cursor in a trace. `position` events have happened; `choose` replaces what followed by another event."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.position = 0
        self.chosen = 0
        self.cut: set[int] = set()
        self._playback = Playback(trace)
        self.frame: Frame = self._playback.beginning()
        self._history: list[Frame] = []

    # Moving

    def forward(self) -> bool:
        if self.position == len(self.trace.events) or self.frame.violation:
            return False
        self.frame = self._playback.play(self.trace.events[self.position])
        self._history.append(self.frame)
        self.position += 1
        self.chosen = 0
        return True

    def go(self, position: int) -> None:
        """To where `position` events have happened: played again from the beginning where that lies before."""
        if position < self.position:
            self._playback = Playback(self.trace)
            self.frame = self._playback.beginning()
            self._history.clear()
            self.position = 0
        while self.position < position and self.forward():
            pass

    # Deciding

    def choices(self) -> list[TraceEvent]:
        """What may happen next: messages that wait (unless their link is cut), timers, appends."""
        events = []
        for message in self.frame.waiting:
            receiver = self._view(message.destination)
            is_cut = (message.source in self.cut) != (message.destination in self.cut)
            if receiver.role != "down" and not is_cut:
                event = TraceEvent("deliver", message.destination, message.source, message.name)
                if event not in events:
                    events.append(event)
        for view in self.frame.nodes:
            if view.role == "leader":
                events += [TraceEvent("append", view.id, number=1), TraceEvent("resign", view.id)]
            elif view.role != "down":
                events.append(TraceEvent("timeout", view.id))
        return events

    def choose(self, event: TraceEvent) -> None:
        """This happens next; the rest of the trace is forgotten."""
        self.trace = self.trace.with_events((*self.trace.events[: self.position], event))
        self._playback.trace = self.trace
        self.forward()

    def toggle_process(self, node_id: int) -> None:
        is_down = self._view(node_id).role == "down"
        self.choose(TraceEvent("start" if is_down else "crash", node_id, number=-1 if is_down else 0))

    def toggle_cut(self, node_id: int) -> None:
        """Cuts a node off, or heals it: what crosses the cut waits."""
        self.cut ^= {node_id}

    def _view(self, node_id: int) -> NodeView:
        return next(view for view in self.frame.nodes if view.id == node_id)

    # What a terminal shows, and the keys that it knows

    def selected_node(self) -> int:
        """The node that `c` and `x` are about: that of the chosen event."""
        choices = self.choices()
        return choices[self.chosen].node if choices else self.frame.nodes[0].id

    def key(self, name: str) -> bool:
        """Does what a key means; false where it ends the program."""
        count = max(len(self.choices()), 1)
        if name in ("q", "escape"):
            return False
        if name in (" ", "right"):
            self.forward()
        elif name == "left":
            self.go(max(self.position - 1, 0))
        elif name == "home":
            self.go(0)
        elif name == "end":
            self.go(len(self.trace.events))
        elif name in ("up", "down"):
            self.chosen = (self.chosen + (1 if name == "down" else -1)) % count
        elif name == "enter" and self.choices() and not self.frame.violation:
            self.choose(self.choices()[self.chosen])
        elif name == "c" and not self.frame.violation:
            self.toggle_process(self.selected_node())
        elif name == "x":
            self.toggle_cut(self.selected_node())
        elif name.isdigit() and any(view.id == int(name) for view in self.frame.nodes):
            places = [place for place, event in enumerate(self.choices()) if event.node == int(name)]
            self.chosen = places[0] if places else self.chosen
        return True

    def lines(self, width: int, height: int) -> list[str]:
        """The screen, at most `height` lines of `width` characters."""
        trace = self.trace
        rows = [f"{trace.scenario}, seed {trace.seed}   event {self.position} of {len(trace.events)}", ""]
        rows.append("node   role         epoch  leader  vote   end   high watermark  voters")
        for view in self.frame.nodes:
            cut = "  CUT OFF" if view.id in self.cut else ""
            rows.append(
                f"{view.id:<6} {view.role:<12} {view.epoch:<6} {_id(view.leader):<7} {_id(view.voted_for):<6} "
                f"{view.end_offset:<5} {_id(view.high_watermark):<15} {', '.join(map(str, view.voters))}{cut}"
            )
        rows.append("")
        rows += [f"{frame.number:>5}. {sentence(frame)}" for frame in self._history[-HISTORY_LINES:]]
        if self.frame.violation:
            rows += ["", f"BROKEN: {self.frame.violation}"]
        else:
            rows += ["", f"next: {len(self.frame.waiting)} messages wait"]
            rows += self._menu(max(height - len(rows) - 2, 3))
        return [row[:width] for row in [*rows[: height - 1], HELP]]

    def _menu(self, room: int) -> list[str]:
        """The choices around the chosen one, with what each message says."""
        texts = {(message.source, message.destination, message.name): message.text for message in self.frame.waiting}
        first = max(0, min(self.chosen - room // 2, len(self.choices()) - room))
        rows = []
        for place, event in list(enumerate(self.choices()))[first : first + room]:
            text = texts.get((event.source, event.node, event.message), "")
            rows.append(f"{'>' if place == self.chosen else ' '} {event.text()}{': ' if text else ''}{text}")
        return rows


def _id(number: int) -> str:
    return str(number) if number >= 0 else "-"
