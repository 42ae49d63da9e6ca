"""The report of a fleet with a year behind it, in a browser: python -m benchmarks.year_of_pages [--clusters 60].

Every few days a broker of each cluster is fenced, or shut down in order, and comes back; at times two are gone at once.
Now and then a topic's min.insync.replicas is lowered. A week before the end every third cluster loses a broker for
good. The logs are read into a lake and reported on as a user does it, in `run --engine local` and `report`. The fleet's
page and the largest page of a cluster are then opened from the disk in Chromium. A page is ready once it has loaded and
its script has shown the first rows; each is opened OPENED times, and the median counts.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kraft_audit
from benchmarks.figures import Figure, Skipped, print_figures
from benchmarks.fleet import fleet_file
from benchmarks.processes import COMMAND, used_by
from kraft_codec.schemas import Dialect
from kraft_codec.text.java_text import uuid_bytes
from kraft_engine.consensus.log_batches import Record
from kraft_engine.runs.fleet_logs import simulate_fleet
from kraft_engine.runs.fleet_topics import BROKERS
from kraft_engine.world.encoding import records_octets

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
VOTERS = 3
OPENED = 5
PAGE_BYTES = 2_000_000
READY_SECONDS = 1.0
CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


@dataclass(slots=True)
class Year:
    """A cluster's brokers and partitions over the year, as batches of records after its log's first ones.

    `partitions` are (topic, topic id, number). Each is led by the first broker that is there; ISR, ELR and
    registrations change as Kafka 4.3 changes them.
    """

    chance: random.Random
    brokers: dict[int, dict[str, Any]]
    partitions: list[tuple[str, bytes, int]]
    end_offset: int
    octets: bytearray = field(default_factory=bytearray)
    isr: list[int] = field(default_factory=lambda: list(BROKERS))
    elr: list[int] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    min_isr: dict[str, int] = field(default_factory=dict)

    def batch(self, at_ms: int, records: list[Record]) -> None:
        self.octets += records_octets(records, self.end_offset, 1, at_ms, False, Dialect.KIP853)
        self.end_offset += len(records)

    def play(self, from_ms: int, to_ms: int, *, loses_a_broker: bool) -> None:
        topics = sorted({topic for topic, _, _ in self.partitions})
        self._set_min_isr(from_ms + HOUR_MS, topics, 2)
        now = from_ms
        while (now := now + self.chance.randrange(DAY_MS, 6 * DAY_MS)) < to_ms - 8 * DAY_MS:
            gone = self.chance.sample(BROKERS, self.chance.choice((1, 1, 1, 1, 2)))
            at = now
            for broker in gone:
                self._stop(at, broker, in_order=self.chance.random() < 0.5)
                at += self.chance.randrange(10_000, 60_000)
            for broker in reversed(gone):
                at += self.chance.randrange(60_000, HOUR_MS)
                self._start(at, broker)
                at += 30_000
            if self.chance.random() < 0.2:
                lowered = [self.chance.choice(topics)]
                self._set_min_isr(at + HOUR_MS, lowered, 1)
                self._set_min_isr(at + 6 * HOUR_MS, lowered, 2)
        if loses_a_broker:
            self._stop(to_ms - 7 * DAY_MS, BROKERS[-1], in_order=False)
        self.batch(to_ms, [("NoOpRecord", 0, {})])

    def _stop(self, at: int, broker: int, *, in_order: bool) -> None:
        named = {"brokerId": broker, "brokerEpoch": self.brokers[broker]["brokerEpoch"]}
        self.down.add(broker)
        if in_order:
            shutting_down: Record = ("BrokerRegistrationChangeRecord", 1, {**named, "inControlledShutdown": 1})
            self.batch(at, [shutting_down, *self._changes()])
        fenced: Record = ("BrokerRegistrationChangeRecord", 1, {**named, "fenced": 1})
        self.batch(at + 5_000, [*([] if in_order else self._changes()), fenced])

    def _start(self, at: int, broker: int) -> None:
        """It registers again, is unfenced when it has caught up, and is back in each ISR a moment later."""
        registration = self.brokers[broker]
        registration |= {"brokerEpoch": self.end_offset, "incarnationId": self.chance.randbytes(16), "fenced": True}
        self.batch(at, [("RegisterBrokerRecord", 3, dict(registration))])
        unfenced = {"brokerId": broker, "brokerEpoch": registration["brokerEpoch"], "fenced": -1}
        self.batch(at + 5_000, [("BrokerRegistrationChangeRecord", 1, unfenced)])
        self.down.discard(broker)
        self.batch(at + 20_000, self._changes())

    def _changes(self) -> list[Record]:
        """Every partition with the brokers that are there; who left stays eligible where the ISR is too small."""
        left = [*self.elr, *(broker for broker in self.isr if broker in self.down)]
        self.isr = [broker for broker in BROKERS if broker not in self.down]
        had, self.elr = self.elr, [broker for broker in left if broker not in self.isr] if len(self.isr) < 2 else []
        records: list[Record] = []
        for topic, topic_id, number in self.partitions:
            fields: dict[str, Any] = {
                "partitionId": number,
                "topicId": topic_id,
                "isr": self.isr,
                "leader": self.isr[0],
            }
            if self.min_isr[topic] > 1 and self.elr != had:
                fields["eligibleLeaderReplicas"] = self.elr
            records.append(("PartitionChangeRecord", 2, fields))
        return records

    def _set_min_isr(self, at: int, topics: list[str], value: int) -> None:
        self.min_isr |= dict.fromkeys(topics, value)
        fields = {"resourceType": 2, "name": "min.insync.replicas", "value": str(value)}
        self.batch(at, [("ConfigRecord", 0, {**fields, "resourceName": topic}) for topic in topics])


def make_year(logs: Path, clusters: int, partitions: int, days: int) -> int:
    """Writes the fleet's node dirs, captured a moment ago; the bytes of one replica of each log."""
    to_ms = int(time.time()) * 1000 - 3_600_000
    from_ms = to_ms - days * DAY_MS
    simulate_fleet(logs, clusters=clusters, partitions=partitions, changes=0, voters=VOTERS, began_ms=from_ms)
    size = 0
    for number in range(clusters):
        folder = logs / f"cluster-{number}"
        (cluster,) = kraft_audit.open(str(folder / "node-1"))
        state = cluster.state()
        year = Year(
            random.Random(number),  # noqa: S311
            {row["broker_id"]: registration(row) for row in state.rows("broker_changes")},
            [(row["topic"], uuid_bytes(row["topic_id"]), row["partition"]) for row in state.rows("partition_changes")],
            end_offset=state.offset + 1,
        )
        year.play(from_ms, to_ms, loses_a_broker=number % 3 == 0)
        for segment in folder.glob("node-*/*/*.log"):
            with segment.open("ab") as file:
                file.write(year.octets)
            size += segment.stat().st_size if "node-1" in segment.parts else 0
    hour_ago = time.time() - 3_600
    for path in logs.rglob("*"):
        os.utime(path, (hour_ago, hour_ago))
    return size


def registration(row: Mapping[str, Any]) -> dict[str, Any]:
    """A broker's registration as its record has it."""
    (listener,) = row["end_points"]
    names = {"name": "name", "host": "host", "port": "port", "security_protocol": "securityProtocol"}
    return {
        "brokerId": row["broker_id"],
        "incarnationId": uuid_bytes(row["incarnation_id"]),
        "brokerEpoch": row["broker_epoch"],
        "endPoints": [{names[name]: value for name, value in listener.items()}],
        "features": [],
        "rack": None,
        "fenced": row["fenced"],
        "logDirs": [uuid_bytes(log_dir) for log_dir in row["log_dirs"]],
    }


@dataclass(frozen=True, slots=True)
class Opened:
    """A page in a browser: its bytes, and seconds from the request to loaded and to ready."""

    size_bytes: int
    loaded_seconds: float
    ready_seconds: float


def opened_pages(pages: list[Path]) -> Iterator[Opened]:
    """Each page, as a browser opens it that has opened another one before. Raises ImportError without playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = os.environ.get("KRAFT_AUDIT_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM))
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(pages[0].as_uri())
        for page in pages:
            times = [opened(tab, page) for _ in range(OPENED)]
            loaded, ready = (statistics.median(each) for each in zip(*times, strict=True))
            yield Opened(page.stat().st_size, loaded, ready)
        browser.close()


def opened(tab: Any, page: Path) -> tuple[float, float]:
    tab.goto("about:blank")
    started = time.perf_counter()
    tab.goto(page.as_uri())
    # Two frames: what the script changed has been laid out and painted.
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    ready = time.perf_counter() - started
    loaded = tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
    return loaded, ready


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=60)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--keep", type=Path, help="a new folder for logs, lake and site, which stay")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        size = make_year(folder / "logs", given.clusters, given.partitions, given.days)
        print(
            f"{given.clusters} clusters of {given.partitions} partitions, {given.days} days: {size / 1e6:.1f} MB of log"
        )
        file = fleet_file(folder, "year", folder / "logs", given.clusters, VOTERS)
        run = used_by([*COMMAND, "run", str(file), "--engine", "local", "--output", "json"])
        report = used_by([*COMMAND, "report", str(folder / "lake-year"), "--out", str(folder / "site")])
        print(f"run {run.seconds:.1f} s, report {report.seconds:.1f} s\n{report.output.strip()}")
        index = folder / "site" / "index.html"
        largest = max((folder / "site" / "clusters").glob("*.html"), key=lambda page: page.stat().st_size)
        try:
            fleet, cluster = opened_pages([index, largest])
        except ImportError:
            print_figures([Skipped("the fleet's page", "playwright is not here")])
            return 0
        for name, page in (("fleet", fleet), ("largest cluster", cluster)):
            seconds = f"loaded in {page.loaded_seconds * 1000:.0f} ms, ready in {page.ready_seconds * 1000:.0f} ms"
            print(f"page of the {name}: {page.size_bytes:,} bytes, {seconds}")
        what = f"{given.clusters} clusters over {given.days} days: the fleet's page"
        size_bytes, seconds = fleet.size_bytes, fleet.ready_seconds
        print_figures([
            Figure(f"{what}, bytes", PAGE_BYTES / size_bytes, 1.0, f"{size_bytes:,}", f"{PAGE_BYTES:,}"),
            Figure(f"{what}, ready", READY_SECONDS / seconds, 1.0, f"{seconds:.3f} s", f"{READY_SECONDS} s"),
        ])  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
