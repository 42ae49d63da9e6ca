"""Logs and lake in an object store: a local S3 server, addressed as a real one is, by the usual environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.maintenance import DeltaMaintainer, maintain_lake
from kraft_audit.lake.settings import Committer, FleetSettings, MaintainSettings
from kraft_audit.spark.session import jar_settings
from kraft_audit.tables import LAKE_TABLES
from kraft_codec.errors import InputError
from tests.builders.s3_server import s3_server

pytestmark = [pytest.mark.ci, pytest.mark.timeout(180)]

NAME = "divergence"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """In a process of its own: deltalake's file handles keep the interpreter to themselves while they wait."""
    with s3_server(monkeypatch, "kraft"):
        yield "kraft"


@pytest.fixture
def uploaded(bucket: str, small_corpus: Path) -> str:
    """The captures of one cluster as objects."""
    import boto3

    client = boto3.client("s3")
    for file in sorted((small_corpus / NAME).rglob("*")):
        if file.is_file():
            client.upload_file(str(file), bucket, f"logs/{file.relative_to(small_corpus / NAME)}")
    # Objects have whole seconds: what was written in the second of the plan would not be trusted to be unchanged.
    time.sleep(3)
    return f"s3://{bucket}/logs"


def test_logs_and_lake_in_a_bucket(
    uploaded: str, bucket: str, small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType,
    rows_of: Callable[..., list[str]], tmp_path: Path,
) -> None:  # fmt: skip
    local = make_fleet({NAME: [small_corpus / NAME]}, lake="local")
    without_spark.run(local)
    remote = make_fleet({NAME: [uploaded]}, lake="remote").model_copy(update={"lake": f"s3://{bucket}/lake"})
    assert without_spark.run(remote).failed == {}
    places = frozenset({"root", "path", "capture", "mtime_ms", "medium"})
    for table in ("captures", "files", "batches", "records", "decode_errors"):
        assert rows_of(remote.lake, table, places) == rows_of(local.lake, table, places), table
    again = without_spark.run(remote)
    assert (again.plans, again.failed, again.unchanged) == ([], {}, 1)


@pytest.mark.parametrize("maker", ["deltalake", "spark"])
def test_a_second_kind_of_committer_writes_nothing_to_a_bucket(
    maker: Committer, bucket: str, small_corpus: Path, make_fleet: Callable[..., FleetSettings],
    without_spark: ModuleType, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Refused before anything is written, by run and by maintain: every object stays as it is."""
    import boto3

    def objects() -> dict[str, str]:
        pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {each["Key"]: f"{each['ETag']} {each['LastModified']}" for page in pages for each in page["Contents"]}

    fleet = make_fleet({NAME: [small_corpus / NAME]}).model_copy(update={"lake": f"s3://{bucket}/lake"})
    monkeypatch.setattr(DeltaLake, "committer", maker)
    Ledger(DeltaLake(fleet.lake)).create()
    before = objects()
    assert len(before) >= len(LAKE_TABLES)
    monkeypatch.setattr(DeltaLake, "committer", "spark" if maker == "deltalake" else "deltalake")
    with pytest.raises(InputError, match=f"its committer is {maker}, and a second kind could overwrite"):
        without_spark.run(fleet)
    lake = DeltaLake(fleet.lake)
    with pytest.raises(InputError, match=f"its committer is {maker}"):
        list(maintain_lake(lake, DeltaMaintainer(lake, 1 << 20), MaintainSettings()))
    assert objects() == before


@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_lake_that_spark_commits_to(
    bucket: str, small_corpus: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType,
    rows_of: Callable[..., list[str]], tmp_path: Path, project_root: Path,
) -> None:  # fmt: skip
    """The same tables by delta-spark over s3a; credentials from the environment, where the SDK looks for them."""
    s3a = sorted((project_root / ".jars-s3a").glob("*.jar"))
    if not s3a:
        pytest.skip("hadoop-aws is not here: make s3a-jars")
    jars = jar_settings().get("spark.jars", "").split(",")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    conf = {
        "spark.master": "local[1]",
        "spark.jars": ",".join([*jars, *map(str, s3a)]),
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.delta.logStore.s3.impl": "io.delta.storage.S3SingleDriverLogStore",
    }
    (tmp_path / "s3a.conf").write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
    local = make_fleet({NAME: [small_corpus / NAME]}, lake="local")
    without_spark.run(local)
    fleet = {
        "lake": f"s3://{bucket}/spark-lake", "committer": "spark", "staging": str(tmp_path / "staging"),
        "redaction_key_file": local.redaction_key_file,
        "clusters": [{"name": NAME, "paths": [str(small_corpus / NAME)]}],
    }  # fmt: skip
    (tmp_path / "by-spark.yaml").write_text(yaml.safe_dump(fleet))
    program = [sys.executable, "-c", "from kraft_audit.commands.cli import main; main()"]
    ran = subprocess.run(
        [*program, "run", str(tmp_path / "by-spark.yaml"), "--tables-only", "--spark-conf", str(tmp_path / "s3a.conf")],
        env=os.environ | {"PYTHONPATH": str(project_root)}, capture_output=True, text=True, timeout=880,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    for table in ("captures", "files", "batches", "records", "decode_errors"):
        assert rows_of(str(fleet["lake"]), table) == rows_of(local.lake, table), table
