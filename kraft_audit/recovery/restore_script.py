"""A restore kit as a bash script: what it is for, what it cannot do, the blanks, the commands, the old logs.

Nothing in it acts on a terminal, whatever things are called, and it can be run again after it failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kraft_audit.recovery.lost_state import LostLog
from kraft_audit.recovery.restore_kit import SERVER, TOOLS, RestoreKit
from kraft_audit.replay.cluster_state import ClusterState, Moment, missing_text
from kraft_audit.text.output import neutral


def kit_heading(
    title: str, moment: Moment, state: ClusterState, kit: RestoreKit, lost: Sequence[LostLog] | None
) -> Iterator[str]:
    """What the script is for, and how far that is known. `lost`: the logs whose state it is, None for the cluster's."""
    if lost is None:
        yield f"State of cluster {title} after offset {state.offset}: {kit.object_count} objects."
    else:
        yield f"What cluster {title} lacks after offset {state.offset}: {kit.object_count} objects."
        for log in lost:
            yield f"Lost: {log.name}{'' if log.is_complete else ' (INCOMPLETE: records are missing)'}."
        if not lost:
            yield "No captured log goes on otherwise or further."
    yield f"{moment.proof_text(state.offset)}."
    if not state.has_beginning:
        yield "INCOMPLETE: the log begins after offset 0 and no snapshot reaches its start."
    if state.undecoded:
        yield f"INCOMPLETE: {state.undecoded.count} records could not be decoded."
    if state.gaps:
        yield f"INCOMPLETE: {missing_text(state.gaps)}."


def script(kit: RestoreKit, heading: Iterable[str], steps: Iterable[str] = ()) -> Iterator[str]:
    """The lines of the script. `steps`: what is to be done by hand after it."""
    yield "#!/usr/bin/env bash"
    yield from (_comment(line) for line in heading)
    if kit.left_out:
        yield "#"
        yield "# Not brought back:"
        yield from (_comment(f"  {each.kind} {each.subject}: {each.reason}") for each in kit.left_out)
    yield "set -euo pipefail"
    for blank in kit.blanks:
        yield f': "${{{blank.name}:?{blank.meaning if blank is SERVER else _words(blank.meaning)}}}"'
    programs = {step.command.program for step in kit.restored}
    for tool in TOOLS:
        if tool in programs:
            yield f'command -v {tool} >/dev/null || {tool}() {{ {tool}.sh "$@"; }}'
    kind = None
    for step in kit.restored:
        if step.kind != kind:
            kind = step.kind
            yield ""
            yield f"# {kind[:1].upper()}{kind[1:]}"
        yield step.command.text
    for number, line in enumerate(steps):
        if number == 0:
            yield ""
        yield _comment(line)


def _words(text: str) -> str:
    """A text without what a shell could take for its own."""
    return " ".join("".join(character if character.isalnum() else " " for character in neutral(text)).split())


def _comment(text: str) -> str:
    return f"# {neutral(text)}".rstrip()
