"""S3: addresses, expired tokens, wrong clocks, redirects; and a server of its own, with boto's view of the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_capture.cli import main
from kraft_capture.clocks import StoreClock
from kraft_capture.credentials import CredentialChain
from kraft_capture.errors import StoreRefusedError, UsageError
from kraft_capture.http_requests import HttpClient
from kraft_capture.s3_store import S3Place, S3Store, s3_place
from kraft_capture.stores import CREATED, EXISTS, Put
from kraft_codec.files.discovery import discover
from kraft_codec.storage.opener import open_storage
from tests.builders.http_store import HttpServer
from tests.builders.live_log import LiveLog, StoreWitness
from tests.builders.s3_server import s3_server

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "secret"}


def s3_store(server: HttpServer, **headers: str) -> S3Store:
    client = HttpClient(StoreClock(), timeout_s=5, sleep=lambda seconds: None)
    place = S3Place("captures", "kraft", "eu-west-1", server.url)
    return S3Store(place, client, CredentialChain(client, "eu-west-1", KEYS), headers)


def error(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    return status, {}, f"<Error><Code>{code}</Code></Error>".encode()


def test_where_an_object_lies() -> None:
    assert s3_place("s3://captures/kraft/", None, None, {}).url("a/b") == (
        "https://captures.s3.us-east-1.amazonaws.com/kraft/a/b"
    )
    assert s3_place("s3://captures", "cn-north-1", None, {}).url("a") == (
        "https://captures.s3.cn-north-1.amazonaws.com.cn/a"
    )
    dotted = s3_place("s3://with.dots/x y", None, None, {"AWS_REGION": "eu-west-1"})
    assert dotted.url("a") == "https://s3.eu-west-1.amazonaws.com/with.dots/x%20y/a"
    elsewhere = s3_place("s3://captures/kraft", None, None, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000/"})
    assert elsewhere.url("a") == "http://127.0.0.1:9000/captures/kraft/a"
    for wrong in ("s3://", "s3://A", "s3://b", "s3://bucket?x"):
        with pytest.raises(UsageError):
            s3_place(wrong, None, None, {})


def test_an_object_is_put_once(server: HttpServer) -> None:
    store = s3_store(server, **{"x-amz-server-side-encryption": "aws:kms"})
    assert store.put("object", b"first") == Put(CREATED)
    assert store.put("object", b"second") == Put(EXISTS)
    assert server.objects == {"/captures/kraft/object": b"first"}
    signed = server.requests[0].headers["authorization"]
    assert "if-none-match;x-amz-content-sha256;x-amz-date;x-amz-server-side-encryption" in signed


def test_credentials_that_expired_are_asked_for_again(server: HttpServer) -> None:
    server.answers = [error(400, "ExpiredToken")]
    assert s3_store(server).put("object", b"data") == Put(CREATED)
    server.answers = [error(400, "ExpiredToken")] * 2
    with pytest.raises(StoreRefusedError, match="ExpiredToken"):
        s3_store(server).put("other", b"data")


def test_a_wrong_clock_is_corrected_by_the_store_s(server: HttpServer) -> None:
    server.date = "Sat, 01 Jan 2050 12:00:00 GMT"
    server.answers = [error(403, "RequestTimeTooSkewed")]
    store = s3_store(server)
    assert store.put("object", b"data") == Put(CREATED)
    first, second = (request.headers["x-amz-date"] for request in server.requests)
    assert not first.startswith("2050")
    assert second.startswith("20500101T12")
    store.put("another", b"data")
    assert server.requests[-1].headers["x-amz-date"].startswith("20500101T12"), "at once"


def test_another_region_is_named_and_not_followed(server: HttpServer) -> None:
    server.answers = [(307, {"Location": "http://127.0.0.1:9/", "x-amz-bucket-region": "eu-north-1"}, b"")]
    with pytest.raises(StoreRefusedError, match="eu-north-1"):
        s3_store(server).put("object", b"data")


@pytest.mark.ci
def test_a_log_in_a_real_s3_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What boto reads from the bucket is the log."""
    with s3_server(monkeypatch, "captures") as (client, _):
        log = LiveLog(tmp_path / "node")
        log.append(20)
        arguments = ["--log-dirs", str(log.folder), "--to", "s3://captures/kraft", "--state", str(tmp_path / "state")]
        for _ in range(2):
            assert main([*arguments, "--once", "--durable"]) == 0
            log.append(5)
        for each in client.list_objects_v2(Bucket="captures")["Contents"]:
            target = tmp_path / "read" / each["Key"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(client.get_object(Bucket="captures", Key=each["Key"])["Body"].read())
        (cluster,) = (tmp_path / "read" / "kraft").iterdir()
        (replica,) = cluster.iterdir()
        witness = StoreWitness(replica)
        witness.check()
        generation, newest = witness.newest()
        assert witness.log(generation, newest) == log.batches[:25]
        assert newest["passes"]["log_not_before_ms"][0] is None
        assert newest["passes"]["log_not_before_ms"][1] is not None
        with open_storage("s3://captures/kraft") as storage:
            (captured,) = discover(storage).replicas
            (segment,) = [file for file in captured.files if file.name.endswith(".log")]
            assert storage.read_small(segment.path) == b"".join(batch.data for batch in log.batches[:25])
            assert storage.medium(captured.path) == "object_store"
