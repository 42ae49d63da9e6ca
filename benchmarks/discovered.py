"""Many small clusters that no file lists, every hour: python -m benchmarks.discovered [--clusters 1000] [--hours 3].

`clusters_from` finds them in a folder, with --s3 in an S3 server on loopback, whose requests are counted. Each has the
log dirs of three controllers, a hundred partitions; in each hour two batches of changes are added to every log. A run
is the command that users run, on two processors, by `--engine local`. Processor time is that of all its processes; the
server's is not in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hourly import GrowingLogs
from benchmarks.processes import COMMAND, used_by

CORES = 2


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a folder of buckets, in a process of its own; the environment names it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.folder_store", str(folder), str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                counts(address)
                break
            time.sleep(0.1)
        usual = {
            "ENDPOINT_URL": address,
            "ACCESS_KEY_ID": "any",
            "SECRET_ACCESS_KEY": "any",
            "DEFAULT_REGION": "us-east-1",
        }
        os.environ |= {f"AWS_{name}": value for name, value in usual.items()}
        os.environ |= {"AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}
        yield address
    finally:
        process.kill()
        process.wait()


def counts(address: str) -> dict[str, int]:
    """Requests of each kind since this was asked before."""
    with urllib.request.urlopen(f"{address}/-/counts", timeout=10) as answer:  # noqa: S310  # our own server
        found: dict[str, int] = json.load(answer)
    return found


def measure(folder: Path, clusters: int, hours: int, *, is_s3: bool) -> None:
    """Prints what each hour's run used."""
    logs = GrowingLogs(folder / "captures", clusters, hours, replicas=3)
    (folder / "captures" / "truth.jsonl").unlink()
    fleet = folder / "fleet.yaml"
    command = [*COMMAND, "run", str(fleet), "--engine", "local", "--output", "json"]
    with served(folder) if is_s3 else contextlib.nullcontext() as address:
        place = "s3://captures" if is_s3 else str(folder / "captures")
        fleet.write_text(f"lake: lake\nredaction_key_file: key\nclusters_from: {place}/{{name}}/\n")
        for hour in range(hours + 1):
            what = "nothing new"
            if hour < hours:
                logs.show(hour + 1)
                what = "first run" if hour == 0 else f"hour {hour}, a few changes in each"
            used = used_by(command, processors=set(sorted(os.sched_getaffinity(0))[:CORES]))
            summary = json.loads(used.output)
            assert not summary["failed"], summary["failed"]
            steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in summary["seconds"].items())
            peaks = ", ".join(
                f"{kind} {used.peak_bytes(kind) // 1_000_000}"
                for kind in sorted({process.kind for process in used.processes.values()})
            )
            print(f"{clusters} clusters, {what}: {used.seconds:.1f} s, {used.processor_seconds:.1f} s of processor")
            print(f"    steps: {steps} s; peak MB: {peaks}", flush=True)
            if address is not None:
                asked = counts(address)
                print(f"    requests: {asked}, {sum(asked.values()) / clusters:.1f} a cluster", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=3)
    parser.add_argument("--s3", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), chosen.clusters, chosen.hours, is_s3=chosen.s3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
