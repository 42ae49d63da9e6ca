"""Each destination puts a key once, says when it exists, tries again where that helps, refuses where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft_capture.clocks import StoreClock
from kraft_capture.errors import StoreRefusedError, StoreUnavailableError
from kraft_capture.http_requests import HttpClient
from kraft_capture.stores import CREATED, EXISTS, FolderStore, HttpStore, PipeStore, Put
from tests.builders.http_store import HttpServer


def http_store(server: HttpServer, **headers: str) -> HttpStore:
    return HttpStore(f"{server.url}/copies", HttpClient(StoreClock(), timeout_s=5, sleep=lambda seconds: None), headers)


def test_a_folder_keeps_the_first_of_two(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    assert store.put("a/b/object", b"first") == Put(CREATED)
    assert store.put("a/b/object", b"second") == Put(EXISTS)
    assert [path.name for path in (tmp_path / "store" / "a" / "b").iterdir()] == ["object"]
    assert (tmp_path / "store" / "a" / "b" / "object").read_bytes() == b"first"


def test_a_folder_without_hard_links_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*paths: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    store = FolderStore(tmp_path)
    assert store.put("object", b"first") == Put(CREATED)
    assert store.put("object", b"second") == Put(EXISTS)
    assert (tmp_path / "object").read_bytes() == b"first"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailableError):
        FolderStore(tmp_path / "file").put("key", b"")


def test_a_web_server_is_asked_to_keep_what_it_has(server: HttpServer) -> None:
    store = http_store(server, Authorization="Bearer token")
    assert store.put("a/object", b"first") == Put(CREATED)
    assert store.put("a/object", b"second") == Put(EXISTS)
    assert server.objects == {"/copies/a/object": b"first"}
    assert {request.headers["if-none-match"] for request in server.requests} == {"*"}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer token"}


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_what_passes_is_tried_again(server: HttpServer, status: int) -> None:
    server.answers = [(status, {}, b""), (status, {}, b"")]
    assert http_store(server).put("object", b"data") == Put(CREATED, tries=3)


def test_an_answer_that_was_lost_is_no_other_writer(server: HttpServer) -> None:
    """`tries` says that the object may be ours."""
    server.answers = [None]
    assert http_store(server).put("object", b"data") == Put(EXISTS, tries=2)
    assert server.objects["/copies/object"] == b"data"


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404])
def test_what_does_not_pass_is_refused_at_once(server: HttpServer, status: int) -> None:
    server.answers = [(status, {"Location": "http://127.0.0.1:9/"}, b"<Error><Code>Refused</Code></Error>")]
    with pytest.raises(StoreRefusedError, match=f"{status} Refused"):
        http_store(server).put("object", b"data")
    assert len(server.requests) == 1


def test_a_server_that_stays_away(server: HttpServer) -> None:
    server.answers = [(503, {}, b"")] * 9
    with pytest.raises(StoreUnavailableError, match="503"):
        http_store(server).put("object", b"data")
    assert len(server.requests) == 4


def test_the_clock_is_the_server_s(server: HttpServer) -> None:
    server.date = "Thu, 26 Nov 2026 10:00:00 GMT"
    store = http_store(server)
    assert store.clock.not_before_ms() is None
    store.put("object", b"data")
    known = store.clock.not_before_ms()
    assert known is not None
    assert 0 <= known - 1_795_687_200_000 < 5_000


def test_a_command_takes_the_bytes_and_acknowledges_by_its_end(tmp_path: Path) -> None:
    put = f"sh -c 'mkdir -p $(dirname $0) && cat > $0' {tmp_path}/{{uri}}"
    assert PipeStore("gs:/bucket", put, 10).put("a/object", b"data") == Put(CREATED)
    assert (tmp_path / "gs:" / "bucket" / "a" / "object").read_bytes() == b"data"
    with pytest.raises(StoreUnavailableError, match="ended with 3"):
        PipeStore("gs://bucket", "sh -c 'exit 3' {uri}", 10).put("object", b"data")
    with pytest.raises(StoreUnavailableError, match=r"more than 0\.1 s"):
        PipeStore("gs://bucket", "sh -c 'sleep 5' {uri}", 0.1).put("object", b"data")
    with pytest.raises(StoreRefusedError):
        PipeStore("gs://bucket", "/no/such/program {uri}", 10).put("object", b"data")
