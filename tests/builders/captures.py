"""Logs that Apache Kafka wrote, with what Kafka's own classes and tools say of them.

The small corpus is always there: the archives of `samples/`, each unpacked into a folder of its own, with the oracles
and the crafted logs of `tests/data/` beside. All captures of the large corpus are there too, as logs alone. The large
corpus with its oracles lies next to the project in some checkouts; tests of it skip where it does not.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
DATA = ROOT / "tests" / "data"
PREALLOCATED_BYTES = 10 << 20
"""An index file of an open segment has about this length and holds zeros only; it is not unpacked."""
CAPTURE_NAME = re.compile(r"(?P<cluster>.+?)-(?P<capture>\d\d-.+)")


@pytest.fixture(scope="session")
def project_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def samples() -> Path:
    """The archives that the project ships, as an on-call engineer gets them."""
    return SAMPLES


def copy_nodes(source: Path, folder: Path, nodes: tuple[int, ...], without_log: int = 0) -> Path:
    """Some node dirs of a capture in another folder, one of them without its segments."""
    for node_id in nodes:
        shutil.copytree(source / f"node-{node_id}", folder / f"node-{node_id}")
    for log in (folder / f"node-{without_log}").rglob("__cluster_metadata-0/*.log"):
        log.unlink()
    return folder


@pytest.fixture(scope="session")
def small_corpus() -> Path:
    """The captures in the repository, unpacked: one folder a scenario, laid out like those of `corpus`."""
    return SMALL_CORPUS


@pytest.fixture(scope="session")
def captured_logs() -> Path:
    """All captures of the large corpus as logs alone, without oracles: one folder a scenario."""
    archives = sorted((DATA / "captures").glob("*.tar.xz"))

    def unpack(unfinished: Path) -> None:
        for archive in archives:
            _extract(archive, unfinished / archive.name.removesuffix(".tar.xz"))

    return _made_once(ROOT / ".cache" / f"captured-logs-{_content_hash(archives)}", unpack)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The large set of captures, extracted: one folder a scenario. Skips where there is none."""
    folder = _corpus_folder()
    if folder is None:
        pytest.skip("the large set of captures is not beside the project, and KRAFT_AUDIT_CORPUS names no folder")
    return folder


@pytest.fixture(scope="session")
def wild() -> Path:
    """Log dirs that strangers wrote, extracted: one folder a set. Skips where there is none."""
    folder = wild_folder()
    if folder is None:
        pytest.skip("the log dirs of strangers are not beside the project, and KRAFT_AUDIT_WILD names no folder")
    return folder


@pytest.fixture(scope="session")
def cases() -> Path:
    """Small captures of real clusters in trouble, extracted: one folder a case. Skips where there is none."""
    archives = sorted((ROOT.parent / "shared" / "cases").glob("*.tar.gz"))
    if declared := os.environ.get("KRAFT_AUDIT_CASES"):
        return Path(declared)
    if not archives:
        pytest.skip("the cases are not beside the project, and KRAFT_AUDIT_CASES names no folder")
    return _extracted(archives, "cases")


@pytest.fixture(scope="session")
def scenarios(small_corpus: Path) -> list[Path]:
    """Every scenario folder at hand that holds an oracle: of the small corpus, and of the large one if it is there."""
    roots = [root for root in (small_corpus, _corpus_folder()) if root is not None]
    found = [index.parents[1] for root in roots for index in sorted(root.glob("*/oracle-files/index.json"))]
    assert found, f"no scenario with an oracle below {roots}"
    return found


def _corpus_folder() -> Path | None:
    if declared := os.environ.get("KRAFT_AUDIT_CORPUS"):
        return Path(declared)
    archives = sorted((ROOT.parent / "shared" / "corpus").glob("*.tar.gz"))
    return _extracted(archives) if archives else None


def wild_folder() -> Path | None:
    """The log dirs of strangers, None where there are none."""
    if declared := os.environ.get("KRAFT_AUDIT_WILD"):
        return Path(declared)
    archives = sorted((ROOT.parent / "shared" / "wild").glob("*.tar.gz"))
    return _extracted(archives, "wild") if archives else None


def _extracted(archives: list[Path], name: str = "corpus") -> Path:
    """Unpack once a machine; an edit of an archive makes a new folder."""
    newest_ns = max(archive.stat().st_mtime_ns for archive in archives)
    size_bytes = sum(archive.stat().st_size for archive in archives)

    def unpack(unfinished: Path) -> None:
        for archive in archives:
            with tarfile.open(archive) as members:
                members.extractall(unfinished, filter="data")

    return _made_once(ROOT / ".cache" / f"{name}-{size_bytes}-{newest_ns}", unpack)


def unpacked_small_corpus() -> Path:
    """Unpack once for each content of the archives, whichever test process comes first."""
    archives = [*sorted(SAMPLES.glob("*.tgz")), *sorted((DATA / "oracles").glob("*.tgz"))]
    crafted = sorted(path for path in (DATA / "crafted").rglob("*") if path.is_file())
    folder = ROOT / ".cache" / f"small-corpus-{_content_hash([*archives, *crafted])}"
    return _made_once(folder, lambda unfinished: _unpack_small_corpus(archives, unfinished))


def _unpack_small_corpus(archives: list[Path], folder: Path) -> None:
    shutil.copytree(DATA / "crafted", folder / "crafted")
    for archive in archives:
        cluster = CAPTURE_NAME.fullmatch(archive.stem)
        _extract(archive, folder / (cluster["cluster"] if cluster else archive.stem))


def _extract(archive: Path, target: Path) -> None:
    """Unpack the files of an archive, without index files that hold zeros only."""
    with tarfile.open(archive) as members:
        for member in members:
            if member.isfile() and member.size < PREALLOCATED_BYTES - 12:
                member.mode = 0o644
                members.extract(member, target, filter="data")


def _content_hash(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(ROOT).as_posix().encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made under another name first and renamed when it is whole."""
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "corpus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_name(f"{folder.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder


SMALL_CORPUS = unpacked_small_corpus()


@pytest.fixture
def two_nodes(small_corpus: Path, tmp_path: Path) -> list[Path]:
    """Two nodes of a capture, in a folder of their own."""
    capture, own = small_corpus / "divergence" / "11-dead-node-diverged", tmp_path / "both"
    return [Path(shutil.copytree(capture / name, own / name)) for name in ("node-1", "node-2")]
