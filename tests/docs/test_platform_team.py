"""The first example of the platform team's page, against a local S3 server: patterns in addresses included."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.builders.s3_server import s3_server

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "start" / "platform-team.md"
pytestmark = pytest.mark.ci


@pytest.fixture
def incident(tmp_path: Path) -> tuple[Path, str]:
    """(folder of node dirs, its cluster id) of a sample."""
    with tarfile.open(ROOT / "samples" / "mini-4.4.0.tgz") as archive:
        archive.extractall(tmp_path / "incident", filter="data")  # our own sample
    meta = next((tmp_path / "incident").rglob("meta.properties")).read_text()
    return tmp_path / "incident", re.search(r"cluster\.id=(\S+)", meta)[1]  # type: ignore[index]


def test_the_first_example_runs(
    incident: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is printed, but for the id of the cluster and the place of the key. The second run finds nothing new."""
    from kraft_audit.commands.cli import run_command

    folder, cluster_id = incident
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("KRAFT_AUDIT_REDACTION_KEY_FILE", str(tmp_path / "key"))
    with s3_server(monkeypatch, "audit") as (client, _):
        fleet = yaml.safe_load(example[1])
        (cluster,) = fleet["clusters"]
        prefix = re.fullmatch(r"s3://metadata-captures/(.*)\*/", cluster["paths"][0])
        assert prefix is not None, "a pattern stands in it"
        client.create_bucket(Bucket="metadata-captures")
        for file in folder.rglob("*"):
            if file.is_file():
                key = f"{prefix[1]}{file.relative_to(folder).as_posix()}"
                client.upload_file(str(file), "metadata-captures", key)
        client.put_object(
            Bucket="audit", Key="fleet.yaml", Body=example[1].replace(cluster["cluster_id"], cluster_id).encode()
        )
        assert run_command(["run", "s3://audit/fleet.yaml", "--output", "json"]) == 0
        first = yaml.safe_load(capsys.readouterr().out)
        assert first["failed"] == {}
        assert len(first["plans"]) == 1
        assert run_command(["lake", "tables", "s3://audit/kraft", "--output", "json"]) == 0
        tables = {row["table"]: row["rows"] for row in yaml.safe_load(capsys.readouterr().out)}
        assert tables["captures"] == len(list(folder.rglob("meta.properties")))
        discovered = "lake: s3://audit/other\nclusters_from: s3://metadata-captures/{name}/**/"
        client.put_object(Bucket="audit", Key="discovered.yaml", Body=discovered.encode())
        assert run_command(["run", "s3://audit/discovered.yaml", "--output", "json"]) == 0
        found = yaml.safe_load(capsys.readouterr().out)
        assert (found["failed"], len(found["plans"])) == ({}, 1)
