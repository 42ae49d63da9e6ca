"""What kraft-audit[lake] would replace of what a managed runtime brings; exit code 1 where the list says otherwise.

`pip install` leaves alone what fits. So the extra is resolved beside the runtime's packages: with those fixed that need
not change, it has to be possible, and with all of them fixed, impossible where some have to. Installs nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def main() -> int:
    is_as_said = True
    for file in sorted(FOLDER.glob("*.toml")):
        for name, runtime in tomllib.loads(file.read_text()).items():
            python, packages, replaced = runtime["python"], runtime["packages"], runtime["replaced"]
            # Each of them has to change: the extra does not fit while it is fixed.
            stays = [each for each in replaced if stands(python, packages, [free for free in replaced if free != each])]
            is_so = stands(python, packages, replaced) and not stays
            is_as_said = is_as_said and is_so
            print(f"{name}: replaces {', '.join(replaced) or 'nothing'}{'' if is_so else ': NOT SO'} {stays or ''}")
    return 0 if is_as_said else 1


def stands(python: str, packages: Sequence[str], free: Collection[str]) -> bool:
    """Whether the extra can be installed beside these packages, those that are `free` apart."""
    fixed = [package for package in packages if package.partition("==")[0] not in free]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(fixed))
        constraints.flush()
        command = ["uv", "pip", "compile", "--quiet", "--python-version", python, "--only-binary", ":all:"]
        command += ["--extra", "lake", "--constraint", constraints.name, str(ROOT / "pyproject.toml")]
        return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
