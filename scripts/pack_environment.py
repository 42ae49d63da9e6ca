"""Pack what workers need besides Spark into dist/kraft_audit-environment.tar.gz, for --archives.

spark-submit --archives dist/kraft_audit-environment.tar.gz#environment \\
  --conf spark.pyspark.python=./environment/bin/python --conf spark.pyspark.driver.python=.venv/bin/python …

Every executor gets a Python with the project's dependencies, as they are installed here. Workers need the same release
of Python at the same place, on the same kind of machine; pyspark itself is the cluster's, the project comes by
--py-files. A driver in client mode asks for ./environment too, where it was started: a link to .venv does.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import tarfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "kraft-audit"
EXTRA = "spark"
NOT_AT_WORK = frozenset({"tests", "include", "__pycache__"})
# The cluster brings these, or only the driver needs them.
LEFT_OUT = frozenset({PROJECT, "pyspark", "py4j", "delta-spark", "grpcio", "grpcio-status", "googleapis-common-protos"})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, nargs="?", default=ROOT / "dist" / "kraft_audit-environment.tar.gz")
    target = parser.parse_args(arguments).target
    if not target.name.endswith((".tar.gz", ".tgz")):
        parser.error(f"{target.name}: Spark unpacks only .tar.gz and .tgz with links and permissions (SPARK-38632)")
    target.parent.mkdir(parents=True, exist_ok=True)
    packages = needed()
    # Compressing is most of the time, and libraries shrink little beyond the first level.
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        pack(archive, packages)
    print(f"{len(packages)} packages, {target.stat().st_size / 1e6:.0f} MB in {target}")
    return 0


def needed() -> list[Distribution]:
    """The project's dependencies and theirs, as they are installed here."""
    distributions: dict[str, Distribution] = {}
    waiting = [(PROJECT, frozenset({"", EXTRA}))]
    while waiting:
        name, extras = waiting.pop()
        known = distribution(name)
        for text in known.requires or ():
            wanted = Requirement(text)
            key = wanted.name.lower().replace("_", "-")
            if key in distributions or key in LEFT_OUT:
                continue
            if wanted.marker is not None and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
                continue
            try:
                distributions[key] = distribution(key)
            except PackageNotFoundError:
                continue  # another system's
            waiting.append((key, frozenset({"", *wanted.extras})))
    return list(distributions.values())


def pack(archive: tarfile.TarFile, packages: list[Distribution]) -> None:
    """Their files at their places, Python as a link to where it is, and the file that makes it an environment."""
    prefix = Path(sys.prefix)
    site = Path(sysconfig.get_path("purelib")).resolve()
    for package in packages:
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            inside = path.resolve().relative_to(site) if path.resolve().is_relative_to(site) else None
            if inside is not None and path.is_file() and NOT_AT_WORK.isdisjoint(inside.parts):
                archive.add(path, Path(sysconfig.get_path("purelib")).relative_to(prefix) / inside)
    python = tarfile.TarInfo("bin/python")
    python.type, python.linkname = tarfile.SYMTYPE, str(Path(sys.executable).resolve())
    archive.addfile(python)
    archive.add(prefix / "pyvenv.cfg", "pyvenv.cfg")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
