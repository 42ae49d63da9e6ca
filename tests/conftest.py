"""Fixtures and markers that every test shares.

The witnesses are files that Apache Kafka wrote, with what Kafka's own classes and tools say of them. `samples/` holds a
few and is always there; the large set of captures lies beside the project in some checkouts, and tests of it skip where
it does not.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
MARKERS_THAT_NEED_MORE = {"spark", "kafka", "ci", "slow"}

KAFKA_VERSION = "4.3.1"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka-jars-{KAFKA_VERSION}</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-shell</artifactId><version>{KAFKA_VERSION}</version></dependency>
</dependencies></project>
"""

CHROMIUM_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

settings.register_profile("quick", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None)
settings.register_profile("nightly", max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "soak",
    max_examples=int(os.environ.get("KRAFT_AUDIT_EXAMPLES", "2000")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("KRAFT_AUDIT_HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs nothing as `unit`."""
    for item in items:
        carried = {marker.name for marker in item.iter_markers()}
        if not carried & MARKERS_THAT_NEED_MORE:
            item.add_marker(pytest.mark.unit)


@pytest.fixture(scope="session")
def project_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def samples() -> Path:
    """The committed captures: one folder a scenario, laid out like those of `corpus`."""
    return ROOT / "samples"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The large set of captures, extracted: one folder a scenario. Skips where there is none."""
    folder = _corpus_folder()
    if folder is None:
        pytest.skip("the large set of captures is not beside the project, and KRAFT_AUDIT_CORPUS names no folder")
    return folder


@pytest.fixture(scope="session")
def kafka_classpath(project_root: Path) -> str:
    """Kafka's own jars by their coordinates, through Maven once a machine. Skips where they cannot be had."""
    if shutil.which("java") is None:
        pytest.skip("Java is not here")
    if declared := os.environ.get("KRAFT_AUDIT_KAFKA_CLASSPATH"):
        return declared
    if shutil.which("mvn") is None:
        pytest.skip("neither KRAFT_AUDIT_KAFKA_CLASSPATH nor Maven is here")
    folder = project_root / ".cache" / f"kafka-jars-{KAFKA_VERSION}"
    found = folder / "classpath.txt"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            (folder / "pom.xml").write_text(POM)
            goal = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:build-classpath"]
            run = subprocess.run([*goal, f"-Dmdep.outputFile={found}"], capture_output=True, text=True, timeout=250)
            if run.returncode != 0:
                pytest.skip(f"Maven could not fetch Kafka's jars: {run.stdout[-200:]}")
    return found.read_text()


@dataclass(slots=True)
class Seen:
    """A tab, and what went wrong in it."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def goto(self, file: Path) -> None:
        self.page.goto(file.as_uri())

    def check(self) -> None:
        assert self.problems == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("KRAFT_AUDIT_CHROMIUM") or shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not here: apt-get install chromium, or KRAFT_AUDIT_CHROMIUM names it")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any) -> Iterator[Seen]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    seen = Seen(context.new_page())
    seen.page.on("console", lambda message: seen.problems.append(f"{message.type}: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.problems.append(str(error)))
    seen.page.on("dialog", lambda dialog: seen.problems.append(f"dialog: {dialog.message}"))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    yield seen
    seen.check()
    context.close()


@pytest.fixture(scope="session")
def scenarios(samples: Path) -> list[Path]:
    """Every scenario folder at hand that holds an oracle: the samples', and the corpus's where there is one."""
    roots = [root for root in (samples, _corpus_folder()) if root is not None]
    found = [index.parents[1] for root in roots for index in sorted(root.glob("*/oracle-files/index.json"))]
    assert found, f"no scenario with an oracle below {roots}"
    return found


def _corpus_folder() -> Path | None:
    if declared := os.environ.get("KRAFT_AUDIT_CORPUS"):
        return Path(declared)
    archives = sorted((ROOT.parent / "shared" / "corpus").glob("*.tar.gz"))
    return _extracted(archives) if archives else None


def _extracted(archives: list[Path]) -> Path:
    """Extract once a machine, whichever test process comes first; an edit of an archive makes a new folder."""
    newest_ns = max(archive.stat().st_mtime_ns for archive in archives)
    size_bytes = sum(archive.stat().st_size for archive in archives)
    folder = ROOT / ".cache" / f"corpus-{size_bytes}-{newest_ns}"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "corpus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        for archive in archives:
            with tarfile.open(archive) as members:
                members.extractall(unfinished, filter="data")
        unfinished.rename(folder)
    return folder
