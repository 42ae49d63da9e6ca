"""Build what a cluster needs: the wheel, the same file named .zip for --py-files, the bill of materials of both.

Spark puts a .zip of --py-files on the workers' path, a .whl it does not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.sbom import sbom

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "dist"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("kraft_audit-*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder.resolve())]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stderr, file=sys.stderr)
        return 1
    wheel = next(iter(folder.glob("kraft_audit-*.whl")))
    shutil.copyfile(wheel, folder / "kraft_audit.zip")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (folder / "kraft_audit.cdx.json").write_text(sbom(lock, version=wheel.name.split("-")[1]), encoding="utf-8")
    print(f"{wheel.name}, kraft_audit.zip and kraft_audit.cdx.json (what it is installed with) in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
