"""Runs commands one after another in one process and reports forbidden requests to the system.

`python -m tests.hostile.every_command ROOT FILE.json`: the file holds the command lines. Python's own audit events are
the witness, which no code can switch off and which need nothing installed. Exit code 9 where something below ROOT would
have been written, made, moved, removed or locked, or an address on a network was asked for; else the last line says how
often Python opened what lies there (libraries that open files by themselves are not seen).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = frozenset(
    f"os.{name}"
    for name in (
        "rename",
        "remove",
        "rmdir",
        "mkdir",
        "link",
        "symlink",
        "truncate",
        "chmod",
        "chown",
        "utime",
        "lockf",
    )
) | {"os.setxattr", "os.removexattr", "os.lockf", "fcntl.flock", "fcntl.lockf", "os.chflags"}
FOLDERS_AT = {
    "os.rename": (2, 3),
    "os.link": (2, 3),
    "os.symlink": (2, 2),
    "os.remove": (1,),
    "os.rmdir": (1,),
    "os.mkdir": (2,),
    "os.chmod": (2,),
    "os.chown": (3,),
    "os.utime": (3,),
}
"""Where an event's arguments, the paths first, hold the descriptor of each path's folder; -1 for none."""
NETWORK = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"})
EXIT_BROKEN = 9


class Witness:
    """What was asked for that must not be, in the order in which it was."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.names = {part for path in root.rglob("*") for part in (path.name, str(path.relative_to(root)))}
        self.reads = 0
        self.broken: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in NETWORK:
            self.broken.append(f"{event} {arguments[1:]}")
        elif event == "open":
            path, _, flags = arguments
            if self._is_below(path):
                self.reads += 1
                if isinstance(flags, int) and flags & WRITES:
                    self.broken.append(f"{event} {path!r} {flags:#o}")
        elif event in CHANGES and any(self._is_below(path) for path in _changed_paths(event, arguments)):
            self.broken.append(f"{event} {arguments}")

    def _is_below(self, path: Any) -> bool:
        """Also by a name alone, as it is given beside the descriptor of a folder."""
        if isinstance(path, int):
            try:
                path = str(Path(f"/proc/self/fd/{path}").readlink())
            except OSError:
                return False
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        text = os.fsdecode(path)
        if not text.startswith("/"):
            return text in self.names
        return text == self.root or text.startswith(f"{self.root}/")


def _changed_paths(event: str, arguments: tuple[Any, ...]) -> list[Any]:
    """What the request names: in full where it gives a name beside the descriptor of its folder."""
    paths = list(arguments[: len(FOLDERS_AT.get(event, ())) or 2])
    for number, place in enumerate(FOLDERS_AT.get(event, ())):
        folder = arguments[place] if place < len(arguments) else -1
        if isinstance(folder, int) and folder >= 0 and isinstance(paths[number], str | bytes | os.PathLike):
            paths[number] = Path(f"/proc/self/fd/{folder}").readlink() / os.fsdecode(paths[number])
    return paths


def main(root: str, file: str) -> int:
    witness = Witness(Path(root))
    sys.addaudithook(witness)
    from kraft_audit.commands.cli import run_command

    for arguments in json.loads(Path(file).read_text()):
        code = run_command(arguments)
        sys.stdout.flush()
        if code not in (0, 1):
            sys.stderr.write(f"{arguments}: exit code {code}\n")
            return code or 1
        if witness.broken:
            sys.stderr.write(f"{arguments}: {witness.broken}\n")
            return EXIT_BROKEN
    sys.stderr.write(f"opened {witness.reads} times\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
