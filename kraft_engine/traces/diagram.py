"""A trace as a space-time diagram: a lane a node, time downwards, a sentence beside each event.

An A4 page upright holds about thirty events at a readable size; a longer trace makes a longer picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from kraft_engine.traces.playback import Frame, NodeView, Playback
from kraft_engine.traces.trace import Trace

PAGE_WIDTH, PAGE_HEIGHT = 794, 1123  # A4 at 96 dots an inch
STORY_WIDTH, MARGIN, TOP, BOTTOM = 330, 24, 92, 96
ROW_MAX, ROW_MIN = 40, 22
COLORS = {
    "down": "#c9ccd1", "leader": "#1d6f42", "candidate": "#b45309", "prospective": "#d39a3a", "follower": "#3b6ea8",
    "unattached": "#7b8794", "resigned": "#8a5a9e",
}  # fmt: skip
FAULTS = frozenset({"crash", "stop", "die-in-next-write", "replace-disk"})
FONT = "font-family=\"'Inter','Helvetica Neue',Arial,sans-serif\""


def diagram(trace: Trace) -> str:
    """The trace as an SVG document that needs nothing from elsewhere."""
    frames = list(Playback(trace).frames())
    ids = _lanes(trace, frames)
    row = max(ROW_MIN, min(ROW_MAX, (PAGE_HEIGHT - TOP - BOTTOM) // max(len(frames), 1)))
    height = max(TOP + row * len(frames) + BOTTOM, 320)
    lane = (PAGE_WIDTH - STORY_WIDTH - 2 * MARGIN) // max(len(ids), 1)
    left = {node_id: STORY_WIDTH + MARGIN + lane * place + lane // 2 for place, node_id in enumerate(ids)}
    parts = [*_head(trace, height), *_names(frames[-1].nodes, left)]
    parts += _life_lines(frames, left, row)
    for frame in frames[1:]:
        parts += _event(frame, left, TOP + row * frame.number)
    parts += _messages(frames, left, row)
    for frame in frames[1:]:
        parts += _sentence(frame, TOP + row * frame.number)
    return "\n".join([*parts, *_ending(trace, frames[-1], height), *_foot(height), "</svg>"]) + "\n"


def _lanes(trace: Trace, frames: Sequence[Frame]) -> list[int]:
    """The nodes that take part, in the order of their ids."""
    used = {node for event in trace.events for node in (event.node, event.source) if node >= 0}
    return [view.id for view in frames[0].nodes if view.id in used] or [view.id for view in frames[0].nodes]


def _head(trace: Trace, height: int) -> list[str]:
    what = trace.breaks or "A run of the quorum"
    origin = f"{trace.scenario}, seed {trace.seed}" if trace.scenario != "model" else "found by the small model"
    rules = f", without {', '.join(trace.without)}" if trace.without else ""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE_WIDTH} {height}" width="{PAGE_WIDTH}" '
        f'height="{height}" {FONT} font-size="12" fill="#1f2933">',
        "<title>" + escape(f"{what}: {len(trace.events)} events") + "</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#52606d"/></marker></defs>',
        f'<rect width="{PAGE_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="34" font-size="18" font-weight="600">{escape(what)}</text>',
        f'<text x="{MARGIN}" y="54" fill="#52606d">{escape(origin + rules)}: {len(trace.events)} events</text>',
    ]


def _names(nodes: tuple[NodeView, ...], left: dict[int, int]) -> list[str]:
    return [
        f'<text x="{left[view.id]}" y="{TOP - 12}" text-anchor="middle" font-weight="600">node {view.id}</text>'
        for view in nodes
        if view.id in left
    ]


def _life_lines(frames: Sequence[Frame], left: dict[int, int], row: int) -> list[str]:
    """Each node's line, in the colour of its role; thin and grey while it is down."""
    parts = []
    for number, frame in enumerate(frames):
        for view in frame.nodes:
            if view.id not in left:
                continue
            top = TOP + row * number
            width, dash = (1.5, ' stroke-dasharray="2 4"') if view.role == "down" else (4, "")
            parts.append(
                f'<line x1="{left[view.id]}" y1="{top}" x2="{left[view.id]}" y2="{top + row}" '
                f'stroke="{COLORS[view.role]}" stroke-width="{width}"{dash}/>'
            )
    return parts


def _event(frame: Frame, left: dict[int, int], top: int) -> list[str]:
    event = frame.event
    if event is None or event.node not in left:
        return []
    x = left[event.node]
    if event.kind in FAULTS:
        return [
            f'<path d="M{x - 7} {top - 7} L{x + 7} {top + 7} M{x + 7} {top - 7} L{x - 7} {top + 7}" '
            'stroke="#b91c1c" stroke-width="3"/>'
        ]
    view = next(view for view in frame.nodes if view.id == event.node)
    shape = f'<circle cx="{x}" cy="{top}" r="5" fill="{COLORS[view.role]}" stroke="#ffffff" stroke-width="1.5"/>'
    if event.kind in ("timeout", "resign", "give-up"):
        shape = f'<rect x="{x - 5}" y="{top - 5}" width="10" height="10" fill="{COLORS[view.role]}" stroke="#ffffff"/>'
    label = f"{view.role} {view.epoch}" if _is_new_role(frame) else ""
    return [shape, *([_label(x + 9, top - 7, label)] if label else [])]


def _is_new_role(frame: Frame) -> bool:
    words = ("leads epoch", "stands for", "resigns")
    return any(word in note for note in frame.notes for word in words)


def _label(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" font-size="10" fill="#323f4b">{escape(text)}</text>'


def _messages(frames: Sequence[Frame], left: dict[int, int], row: int) -> list[str]:
    """Arrows from where a message was sent to where it arrived."""
    parts = []
    for frame in frames[1:]:
        message = frame.delivered
        if message is None or message.source not in left or message.destination not in left:
            continue
        x1, y1 = left[message.source], TOP + row * message.frame
        x2, y2 = left[message.destination], TOP + row * frame.number
        inset = 6 if x2 > x1 else -6
        parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2 - inset}" y2="{y2}" stroke="#52606d" stroke-width="1" '
            'marker-end="url(#tip)" opacity="0.75"/>'
        )
    return parts


def sentence(frame: Frame) -> str:
    """What the event is and does, in words."""
    event = frame.event
    if event is None:
        return ""
    node = f"Node {event.node}"
    if event.kind == "deliver" and frame.delivered is not None:
        text = f"{event.source} → {event.node}: {frame.delivered.text}"
    elif event.kind == "deliver":
        text = f"{event.source} → {event.node}: no {event.message} waits"
    else:
        text = {
            "start": f"{node} starts",
            "stop": f"{node} stops cleanly",
            "crash": f"{node} crashes",
            "timeout": f"{node}'s timer ends",
            "retry": f"{node} asks again",
            "resign": f"{node} heard from no majority",
            "give-up": f"{node} gives the voter change up",
            "append": f"{node} appends {max(event.number, 1)} record{'s' if event.number > 1 else ''}",
            "add-voter": f"An operator adds voter {event.number} at {event.node}",
            "remove-voter": f"An operator removes voter {event.number} at {event.node}",
            "replace-disk": f"{node} gets a new, empty disk",
            "die-in-next-write": f"{node} will die in its next write",
            "upgrade": f"{node} is asked for kraft.version 1",
            "snapshot": f"{node} takes a snapshot",
            "clean": f"{node} drops what its snapshot covers",
            "ask": f"{node} receives a stray request",
        }.get(event.kind, event.text())
    return text + ("" if not frame.notes else f"{'' if text.endswith('?') else ';'} {', '.join(frame.notes)}")


def _sentence(frame: Frame, top: int) -> list[str]:
    lines = _wrapped(f"{frame.number}. {sentence(frame)}", 54)
    is_last = bool(frame.violation)
    color = "#b91c1c" if is_last else "#1f2933"
    weight = ' font-weight="600"' if is_last else ""
    first = top + 4 - 6 * (len(lines) - 1)
    return [
        f'<text x="{MARGIN}" y="{first + 13 * place}" font-size="11.5" fill="{color}"{weight}>{escape(line)}</text>'
        for place, line in enumerate(lines)
    ]


def _wrapped(text: str, width: int) -> list[str]:
    """At most two lines; what does not fit is cut."""
    if len(text) <= width:
        return [text]
    cut = text.rfind(" ", 0, width + 1)
    rest = text[cut + 1 :]
    return [text[:cut], rest if len(rest) <= width else rest[: width - 1] + "…"]


def _ending(trace: Trace, frame: Frame, height: int) -> list[str]:
    """What is wrong at the end."""
    text = trace.detail or frame.violation.partition(": ")[2]
    lines = _wrapped(f"Broken: {text}", 120) if text else []
    return [
        f'<text x="{MARGIN}" y="{height - 62 + 14 * place}" fill="#b91c1c">{escape(line)}</text>'
        for place, line in enumerate(lines)
    ]


def _foot(height: int) -> list[str]:
    """The legend: a role's colour, a fault's cross."""
    parts, x = [], MARGIN
    for role, color in COLORS.items():
        parts.append(
            f'<line x1="{x}" y1="{height - 22}" x2="{x + 16}" y2="{height - 22}" stroke="{color}" stroke-width="4"/>'
        )
        parts.append(_label(x + 21, height - 18, role))
        x += 36 + 7 * len(role)
    parts.append(f'<text x="{x}" y="{height - 18}" font-size="10" fill="#b91c1c">✕ fault   ■ timer   ● event</text>')
    return parts
