"""Writes kraft-capture as one file: `python scripts/one_file_capture.py [FILE]`, dist/kraft-capture by default.

Copy it to a broker's host and run it with Python 3.9 or newer: nothing has to be installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kraft_capture.one_file import program_bytes  # noqa: E402


def main(arguments: list[str]) -> int:
    target = Path(arguments[0]) if arguments else ROOT / "dist" / "kraft-capture"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(program_bytes())
    target.chmod(0o755)
    print(f"{target}: {target.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
