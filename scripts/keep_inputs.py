"""Keeps what guided runs found: the fewest small inputs that reach branches which the sound ones do not.

`python scripts/keep_inputs.py [FOLDER]` looks at the folder of each parser below FOLDER (.cache/fuzz, where `make soak`
leaves them) and writes tests/fuzz/inputs/PARSER.txt, a line of base64 an input, with the inputs that were there before.
The tests replay these.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fuzz.parsers import PARSERS, Parser, kept_file, kept_inputs

ROOT = Path(__file__).resolve().parents[1]
INPUT_BYTES_MAX = 1024
PARSER_BYTES_MAX = 3000
Arc = tuple[str, int, int]


def arcs(parser: Parser, data: bytes) -> set[Arc]:
    """Which line followed which in our own code."""
    own_arcs: set[Arc] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if "/kraft_codec/" not in name and "/kraft_audit/" not in name:
            return None
        before = frame.f_lineno

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            if event == "line":
                own_arcs.add((name, before, frame.f_lineno))
                before = frame.f_lineno
            return line

        return line

    sys.settrace(trace)
    try:
        parser.feed(data)
    finally:
        sys.settrace(None)
    return own_arcs


def chosen(parser: Parser, inputs: list[bytes]) -> Iterator[bytes]:
    """Small ones first: each that reaches what none before it did."""
    reached = set[Arc]().union(*(arcs(parser, data) for data in parser.seeds()))
    room = PARSER_BYTES_MAX
    for data in sorted(inputs, key=lambda data: (len(data), data)):
        if len(data) > min(room, INPUT_BYTES_MAX):
            break
        if new := arcs(parser, data) - reached:
            reached |= new
            room -= len(data)
            yield data


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / ".cache" / "fuzz"
    for parser in PARSERS.values():
        own = [path.read_bytes() for path in sorted((folder / parser.name).glob("*")) if path.is_file()]
        inputs = list(chosen(parser, [*kept_inputs(parser.name), *own]))
        lines = [base64.b64encode(data).decode() for data in inputs]
        kept_file(parser.name).parent.mkdir(exist_ok=True)
        kept_file(parser.name).write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
        print(f"{parser.name}: {len(inputs)} of {len(own)} inputs, {sum(map(len, inputs))} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
