"""Build what is installed: the platform's wheel, the pure wheel, the zip for --py-files, the bill of materials.

The platform's wheel brings its kernels compiled and needs no compiler (Linux on x86-64, where a C compiler can link
them). The pure wheel compiles at first use, everywhere else. The zip is the pure wheel: Spark puts a .zip of --py-files
on the workers' path, a .whl it does not, and no library can be loaded from a zip. `--pure` leaves the platform's out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.sbom import sbom
from scripts.wheel_hook import SWITCH

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    names = [argument for argument in arguments if argument != "--pure"]
    folder = Path(names[0]) if names else ROOT / "dist"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("kraft_audit-*.whl"):
        old.unlink()
    if not build_wheel(folder):
        return 1
    (pure,) = folder.glob("kraft_audit-*.whl")
    if "--pure" not in arguments and not build_wheel(folder, platform=True):
        print("no platform's wheel: see above; the pure wheel compiles at first use", file=sys.stderr)
    shutil.copyfile(pure, folder / "kraft_audit.zip")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (folder / "kraft_audit.cdx.json").write_text(sbom(lock, version=pure.name.split("-")[1]), encoding="utf-8")
    print("\n".join(sorted(path.name for path in folder.glob("kraft_audit*"))))
    return 0


def build_wheel(folder: Path, *, platform: bool = False) -> bool:
    """Whether hatchling built it; what it says goes to stderr where not."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder.resolve())]
    environment = {**os.environ, SWITCH: "platform" if platform else ""}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stderr.strip().rpartition("\n")[2], file=sys.stderr)
    return built.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
