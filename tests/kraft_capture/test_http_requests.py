"""Requests: proxies as the environment says, TLS verified, speed limited."""

from __future__ import annotations

import base64
import ssl
import time
from pathlib import Path

import pytest

from kraft_capture import http_requests
from kraft_capture.clocks import StoreClock, boottime_ms
from kraft_capture.errors import StoreRefusedError, StoreUnavailableError
from kraft_capture.http_requests import HttpClient, Pace
from tests.builders.http_store import HttpServer


@pytest.fixture
def client() -> HttpClient:
    return HttpClient(StoreClock(), timeout_s=5)


def test_a_proxy_gets_the_whole_address_and_its_own_credentials(
    server: HttpServer, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url.replace("http://", "http://user:p%40ss@"))
    assert client.request("PUT", "http://store.example/a", {}, b"data").status == 200
    (request,) = server.requests
    assert request.target == "http://store.example/a"
    assert request.headers["host"] == "store.example"
    assert base64.b64decode(request.headers["proxy-authorization"].split()[1]) == b"user:p@ss"


def test_tls_goes_through_a_tunnel(server: HttpServer, client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", server.url)
    with pytest.raises((StoreUnavailableError, StoreRefusedError)):
        client.request("PUT", "https://store.example/a", {"Authorization": "secret"}, b"data")
    (request,) = server.requests
    assert (request.method, request.target) == ("CONNECT", "store.example:443")
    assert "authorization" not in request.headers


def test_no_proxy_and_the_machine_s_own_addresses_go_straight(
    server: HttpServer, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert client.request("PUT", f"{server.url}/a", {}, b"data", direct=True).status == 200
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert client.request("PUT", f"{server.url}/b", {}, b"data").status == 200
    assert [request.target for request in server.requests] == ["/a", "/b"]


def test_tls_is_verified(client: HttpClient) -> None:
    context = vars(client)["_tls"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_bundle_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "bundle.pem").write_text("no certificate")
    for name in ("bundle.pem", "missing.pem"):
        with pytest.raises(StoreRefusedError, match="not a bundle"):
            HttpClient(StoreClock(), ca_bundle=str(tmp_path / name))


def test_no_server_answers(client: HttpClient) -> None:
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1"):
        client.request("PUT", "http://127.0.0.1:9/a", {}, b"data")
    with pytest.raises(StoreRefusedError):
        client.request("PUT", "ftp://127.0.0.1/a", {}, b"data")


def test_the_pace_is_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(http_requests.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(http_requests.time, "sleep", sleep)
    data = bytes(1 << 20)
    pace = Pace(8.0)
    assert b"".join(pace.slices(data)) == data
    list(pace.slices(data))
    assert now_s - 100.0 == pytest.approx((2 << 20) / 1e6, rel=0.05)


def test_a_bound_by_the_store_s_clock_is_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StoreClock()
    clock.note("Thu, 26 Nov 2026 10:00:00 GMT")
    noted_ms = boottime_ms()
    monkeypatch.setattr("kraft_capture.clocks.boottime_ms", lambda: noted_ms + 900_000)
    bound = clock.not_before_ms()
    assert bound is not None
    assert 1_795_687_200_000 + 899_000 < bound <= 1_795_687_200_000 + 900_000
    restored = StoreClock()
    restored.restore(clock.to_json())
    assert restored.not_before_ms() == bound
    restored = StoreClock()
    restored.restore({**clock.to_json(), "boot_id": "another"})
    assert restored.not_before_ms() is None
    for text in (None, "", "yesterday"):
        restored.note(text)
    assert restored.not_before_ms() is None
    assert time.time() > 0
