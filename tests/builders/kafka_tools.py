"""What several tests ask of Kafka's classes, and what the engine says of the same."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from kraft_codec.text.java_text import uuid_text
from kraft_engine.brokers.image import METADATA_VERSION, Image
from kraft_engine.world.processes import Process

PATIENCE_S = 150


def read_by_kafka(classpath: str, folders: list[Path]) -> list[list[str]]:
    program = Path(__file__).parent / "java" / "ReadLogDirs.java"
    command = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-cp", classpath, str(program)]
    run = subprocess.run(
        command, input="\n".join(map(str, folders)), capture_output=True, text=True, timeout=280, check=True
    )
    return [line.split("\t") for line in run.stdout.splitlines()]


def quorum_status(classpath: str, port: int) -> dict[str, str]:
    """What kafka-metadata-quorum says of a controller on this port; empty while it is not up."""
    command = ["java", "-Xmx200m", "-cp", classpath, "org.apache.kafka.tools.MetadataQuorumCommand"]
    command += ["--bootstrap-controller", f"127.0.0.1:{port}", "describe", "--status"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return {}  # not up yet: the client retries for a minute by itself
    return dict(re.findall(r"^(\w+):\s+(.*)$", run.stdout, re.MULTILINE)) if run.returncode == 0 else {}


def asked_features(classpath: str, port: int, *arguments: str) -> tuple[int, str]:
    """The exit code and the text of kafka-features, asked of the controller on this port."""
    command = ["java", "-Xmx200m", "-cp", classpath, "org.apache.kafka.tools.FeatureCommand"]
    command += ["--bootstrap-controller", f"127.0.0.1:{port}", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return run.returncode, run.stdout + run.stderr


def controller_properties(folder: Path, log_dir: Path, node_id: int, port: int, quorum: str) -> Path:
    """The properties of a controller alone on a port, with the line that names its quorum."""
    path = folder / "server.properties"
    path.write_text(
        f"process.roles=controller\nnode.id={node_id}\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
        f"{quorum}\nlog.dirs={log_dir}\n"
        # No broker sends heartbeats: their sessions must outlast the test.
        "broker.session.timeout.ms=3600000\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    )
    return path


def started_status(classpath: str, properties: Path, port: int) -> dict[str, str]:
    """Starts a controller, and stops it when it has said what its quorum is."""
    with running_controller(classpath, properties, port) as status:
        return status


@contextlib.contextmanager
def running_controller(classpath: str, properties: Path, port: int) -> Iterator[dict[str, str]]:
    """A controller that runs until the end of the block, and what it said of its quorum once it was up."""
    log = properties.with_name("server.log")
    with log.open("w") as output:
        server = subprocess.Popen(
            ["java", "-Xmx400m", "-cp", classpath, "kafka.Kafka", str(properties)], stdout=output, stderr=output
        )
        try:
            status: dict[str, str] = {}
            deadline = time.monotonic() + PATIENCE_S
            while not status and server.poll() is None and time.monotonic() < deadline:
                status = quorum_status(classpath, port)
            assert status, log.read_text()[-2000:]
            yield status
        finally:
            server.terminate()
            server.wait(60)


def image_rows(process: Process) -> list[list[str]]:
    """What the engine says of the state at the end of this node's log, as the Java program prints Kafka's image."""
    image = replayed(process)
    rows = [["feature", name, str(level)] for name, level in sorted(image.features.items())]
    # metadata.version first.
    rows.sort(key=lambda row: row[1] != METADATA_VERSION)
    for broker_id, broker in sorted(image.brokers.items()):
        rows.append([
            "broker", str(broker_id), str(broker["brokerEpoch"]), uuid_text(broker["incarnationId"]),
            java(broker["fenced"]), java(broker["inControlledShutdown"]), java_uuids(broker["logDirs"]),
            broker["rack"] or "",
        ])  # fmt: skip
    keyed = {f"{kind}\t{resource}\t{name}": value for (kind, resource, name), value in image.configs.items()}
    rows += [["config", *key.split("\t"), keyed[key]] for key in sorted(keyed)]
    for name in sorted(image.topic_ids):
        for number, found in sorted(image.partitions[image.topic_ids[name]].items()):
            rows.append([
                "partition", name, str(number), str(found.replicas), str(found.isr), str(found.elr),
                str(found.last_known_elr), str(found.leader), str(found.leader_epoch), str(found.partition_epoch),
                str(found.recovering), java_uuids(found.directories),
            ])  # fmt: skip
    return rows


def replayed(process: Process) -> Image:
    log = process.disk.log
    image, start = Image(), 0
    snapshot = log.latest_snapshot
    if snapshot is not None and isinstance(snapshot.image, Image):
        image, start = snapshot.image.copy(), snapshot.id[0]
    for batch in log.batches:
        if batch.base_offset >= start:
            image.replay_batch(batch)
    return image.before_transaction or image


def java(value: bool) -> str:
    return str(value).lower()


def java_uuids(uuids: list[bytes]) -> str:
    return "[" + ", ".join(map(uuid_text, uuids)) + "]"
