"""A restore kit as a bash script: what it is for, what it cannot do, the blanks, the commands, the old logs.

Nothing in it acts on a terminal, whatever things are called, and it can be run again after it failed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from kraft_audit.recovery.restore.lost_state import LostLog
from kraft_audit.recovery.restore.restore_kit import SERVER, TOOLS, RestoreKit
from kraft_audit.replay.cluster_state import ClusterState, Moment, missing_text
from kraft_audit.text.output import neutral
from kraft_audit.text.readable import duration, plural
from kraft_audit.text.shell_commands import Blank


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


FAILED: Final = (
    """trap 'echo "$0: line $LINENO failed: $(sed -n "${LINENO}p" "$0" 2>/dev/null)" >&2; """
    """echo "Nothing after it ran. Mend the cause and run the script again: it may be run twice." >&2' ERR"""
)
"""Shows the line that failed as it stands in the script: with the names of blanks, not what they hold."""
COMMAND_S: Final = 2.5
"""Each command starts a JVM: 2.4 to 2.8 s on two processors, 5 s on busy ones (Kafka's scripts, 3.9.2 and 4.3.1)."""


def script(kit: RestoreKit, heading: Iterable[str], steps: Iterable[str] = ()) -> Iterator[str]:
    """The lines of the script. `steps`: what is to be done by hand after it."""
    yield "#!/usr/bin/env bash"
    yield from (_comment(line) for line in heading)
    if kit.left_out:
        yield "#"
        yield "# Not brought back:"
        yield from (_comment(f"  {each.kind} {each.subject}: {each.reason}") for each in kit.left_out)
    if kit.restored:
        yield "#"
        yield _comment(
            f"{plural(len(kit.restored), 'command')}, each in a JVM of its own: about "
            f"{duration(int(len(kit.restored) * COMMAND_S * 1000))}, twice that on a busy machine. It can be run again."
        )
    else:
        yield "# No command is left to run."
    yield "set -euo pipefail"
    yield from _blanks(kit.blanks)
    programs = {step.command.program for step in kit.restored}
    for tool in TOOLS:
        if tool in programs:
            yield f'command -v {tool} >/dev/null || {tool}() {{ {tool}.sh "$@" || return $?; }}'
    if kit.restored:
        yield FAILED
    done = 0
    for kind, group in groupby(kit.restored, lambda step: step.kind):
        steps_of_kind = list(group)
        yield ""
        yield f"# {kind[:1].upper()}{kind[1:]}"
        span = f"commands {done + 1} to {done + len(steps_of_kind)} of {len(kit.restored)}"
        yield f"echo {shlex.quote(f'{kind}: {span}')} >&2"
        yield from (step.command.text for step in steps_of_kind)
        done += len(steps_of_kind)
    for number, line in enumerate(steps):
        if number == 0:
            yield ""
        yield _comment(line)


def _blanks(blanks: Sequence[Blank]) -> Iterator[str]:
    """Lines that name every blank that is not set, and end the script before its first command where one is not."""
    for blank in blanks:
        meaning = blank.meaning if blank is SERVER else _words(blank.meaning)
        says = shlex.quote(f"{blank.name} is not set: {meaning}")
        yield f'[ -n "${{{blank.name}:-}}" ] || {{ echo {says} >&2; missing=yes; }}'
    if blanks:
        yield '[ -z "${missing:-}" ] || exit 1'


def _words(text: str) -> str:
    """A text without what a shell could take for its own."""
    return " ".join("".join(character if character.isalnum() else " " for character in neutral(text)).split())


def _comment(text: str) -> str:
    return f"# {neutral(text)}".rstrip()
