"""Two hundred secrets of every kind, planted in a log: no command, table, page, pack or message lets one out."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_codec.records.record import write_metadata_value
from tests.builders.commands import Command
from tests.builders.hostile_clusters import contents
from tests.builders.path_commands import code_of, path_commands, printed_in

Run = Callable[..., subprocess.CompletedProcess[bytes]]
REPORTS = ("html", "csv", "parquet", "openmetrics")
NOTEBOOKS = ("elr_time_travel", "fleet_risk", "incident_timeline", "replica_divergence", "voter_change_audit")
LOGGED = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
logger.sql.name = org.apache.spark.sql
logger.sql.level = debug
logger.python.name = org.apache.spark.api.python
logger.python.level = debug
appender.file.type = File
appender.file.name = file
appender.file.fileName = {}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c %m%n%ex
"""
"""Spark logs its plans and what it asks of its workers."""
CONFIG_KEYS = (
    *("ssl.keystore.password", "ssl.key.password", "sasl.jaas.config", "listener.name.x.ssl.truststore.password"),
    *("some.unknown.key", "my.plugin.token", "basic.auth.user.info", "follower.replication.throttled.replicas.secret"),
)


class Planted:
    """Makes secrets and remembers every form in which one could show: text, base64, hex."""

    def __init__(self) -> None:
        self.chance = random.Random(20261121)  # noqa: S311
        self.forms: dict[bytes, str] = {}
        self.beginnings: set[bytes] = set()
        self.count = 0

    def text(self, kind: str) -> str:
        self.count += 1
        secret = f"canary{self.count:03}{self.chance.randbytes(6).hex()}"
        for form in (secret.encode(), base64.b64encode(secret.encode()), secret.encode().hex().encode()):
            self.forms[form.rstrip(b"=")] = kind
            self.beginnings.add(form[:8])
        return secret

    def in_(self, data: bytes) -> list[str]:
        if not any(beginning in data for beginning in self.beginnings):
            return []
        return [f"{kind}: {form!r}" for form, kind in self.forms.items() if form in data]


@pytest.fixture
def planted() -> Planted:
    return Planted()


@pytest.fixture
def cluster(planted: Planted, write_cluster: Callable[..., Path], tmp_path: Path) -> Path:
    topic = {"topicId": bytes(range(16))}
    values: list[Any] = [("TopicRecord", {**topic, "name": "orders"})]
    values.append(("PartitionRecord", {**topic, "replicas": [1], "isr": [1], "leader": 1}))
    for number in range(20):
        for key in CONFIG_KEYS:
            config = {"resourceType": 2 if number % 2 else 4, "resourceName": "orders" if number % 2 else "1"}
            values.append(("ConfigRecord", {**config, "name": f"{key}.{number}", "value": planted.text(key)}))
    for number in range(4):
        scram = {name: planted.text(f"SCRAM {name}").encode() for name in ("salt", "storedKey", "serverKey")}
        values.append(
            ("UserScramCredentialRecord", {"name": f"user-{number}", "mechanism": 1, "iterations": 4096, **scram})
        )
        token = {"owner": "User:a", "requester": "User:a", "tokenId": planted.text("token")}
        values.append(("DelegationTokenRecord", token))
        values.append(("RemoveDelegationTokenRecord", {"tokenId": planted.text("token removed")}))
        values.append(b"\x01\x7e\x00" + planted.text("record of an unknown type").encode())
        values.append(b"\x01\x05\x7f" + planted.text("record of an unknown version").encode())
        values.append(b"\x01\x02\x00\xff\xff" + planted.text("record that does not parse").encode())
        tagged = write_metadata_value("NoOpRecord", 0, {})[:-1] + b"\x01\x63" + bytes([22])
        values.append(tagged + planted.text("unknown tagged field").encode()[:21].ljust(22, b"x"))
    tail = planted.text("torn tail").encode()
    while planted.count < 200:
        values.append(
            ("ConfigRecord", {"resourceType": 4, "resourceName": "", "name": "x", "value": planted.text("x")})
        )
    folder = write_cluster(tmp_path / "cluster", values, tail)
    for identity in list(folder.rglob("meta.properties")):
        lines = [f"node.id=1\nlog.dirs=/a,\\\n  ssl.key.password={planted.text('continued line')}"]
        lines += [f"{key}={planted.text('configuration')}" for key in (*CONFIG_KEYS, "listeners", "super.users")]
        identity.with_name("server.properties").write_text("\n".join(lines))
    return folder


@pytest.mark.slow
def test_no_command_lets_a_secret_out(cluster: Path, planted: Planted, kraft_audit: Command, tmp_path: Path) -> None:
    assert planted.count >= 200
    made = tmp_path / "made"
    lines = [*path_commands(cluster, made), ["check", str(cluster), "--fail-on", "never", "--output", "sarif"]]
    lines += [[str(cluster) if part == "PATH" else part for part in line] for line in printed_in("json", "csv")]
    for line in lines:
        ended = kraft_audit(*line)
        assert ended.code == code_of(line), (line, ended.err)
        assert ended.out or line[0] == "rescue", line
        assert not planted.in_((ended.out + ended.err).encode()), line
    assert len(_nothing_in(made, planted)) > 10


@pytest.mark.ci
def test_no_table_and_no_export_holds_a_secret(cluster: Path, planted: Planted, command: Run, tmp_path: Path) -> None:
    made = tmp_path / "made"
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        yaml.safe_dump(
            {
                "lake": str(made / "lake"),
                "redaction_key_file": str(tmp_path / "key"),
                "clusters": [{"name": "secrets", "paths": [str(cluster)]}],
            }
        )
    )
    lake = made / "lake"
    made.mkdir()
    (tmp_path / "log4j2.properties").write_text(LOGGED.format(made / "spark.log"))
    conf = tmp_path / "spark.conf"
    log_settings = f"-Dlog4j2.configurationFile={(tmp_path / 'log4j2.properties').as_uri()}"
    conf.write_text(f"spark.driver.extraJavaOptions {log_settings}\n")
    reports = (["report", lake, "--output", form, "--out", made / f"report-{form}"] for form in REPORTS)
    tables = (["lake", "tables", lake, "--rows", "1000", "-o", form] for form in ("table", "json"))
    for arguments in (
        ["run", fleet, "--spark-conf", conf],
        *tables,
        ["lake", "export", lake, "--out", made / "exported"],
        *reports,
    ):
        done = command(*arguments)
        assert done.returncode == 0, done.stderr.decode()
        assert not planted.in_(done.stdout + done.stderr), arguments
    assert any((made / "exported").rglob("*.log"))
    assert (made / "report-html" / "clusters").is_dir()
    assert b"DEBUG org.apache.spark" in (made / "spark.log").read_bytes(), "Spark logged what it did"
    names = _nothing_in(made, planted)
    assert any("/_delta_log/" in name and name.endswith(".json") for name in names), "minima and maxima of every file"
    assert any(name.endswith(".parquet: statistics") for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_notebook_shows_a_secret(
    name: str, cluster: Path, planted: Planted, project_root: Path, tmp_path: Path
) -> None:
    pytest.importorskip("nbclient")
    from scripts.run_notebook import execute

    made = tmp_path / "made"
    execute(project_root / "notebooks" / f"{name}.py", made, {"PATH": str(cluster)})
    assert len(_nothing_in(made, planted)) == 2, "the notebook, and its page"


def _nothing_in(folder: Path, planted: Planted) -> list[str]:
    """The names of all that was looked at."""
    names = []
    for name, data in contents(folder):
        names.append(name)
        assert not planted.in_(data), name
    return names
