"""HTTP requests to a store: proxies of the environment, TLS always verified, no redirect followed, speed limited."""

from __future__ import annotations

import base64
import http.client
import random
import re
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable
from urllib.parse import SplitResult, unquote, urlsplit

from kraft_capture.clocks import StoreClock
from kraft_capture.errors import StoreRefusedError, StoreUnavailableError

_ANSWER_BYTES_MAX = 256 << 10
_SLICE_BYTES = 64 << 10


@dataclass(frozen=True)
class Response:
    """An answer; `headers` by lower-case name, `body` cut at 256 KiB."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    host: str

    @property
    def code(self) -> str:
        """The error code of S3's XML, empty where there is none."""
        match = re.search(rb"<Code>([A-Za-z]+)</Code>", self.body)
        return match[1].decode("ascii") if match else ""

    @property
    def described(self) -> str:
        """`403 AccessDenied`; of a redirect, where the bucket is. Never a text that could hold a secret."""
        region = self.headers.get("x-amz-bucket-region", "")
        place = f" (the bucket is in {region})" if self.status in (301, 307, 400) and region else ""
        return f"{self.status} {self.code}".strip() + place


class Pace:
    """Keeps what is sent at or below so many megabits a second, over the life of the process."""

    def __init__(self, megabits_per_second: float | None) -> None:
        self._bytes_per_second = megabits_per_second and megabits_per_second * 125_000
        self._free_at = 0.0

    def slices(self, data: bytes) -> Iterator[bytes]:
        """The bytes in parts, each when it is its turn."""
        for at in range(0, len(data), _SLICE_BYTES):
            part = data[at : at + _SLICE_BYTES]
            if self._bytes_per_second:
                now = time.monotonic()
                self._free_at = max(self._free_at, now)
                time.sleep(self._free_at - now)
                self._free_at += len(part) / self._bytes_per_second
            yield part


class HttpClient:
    """A connection for each request; `clock` takes the `Date` of every answer."""

    def __init__(
        self,
        clock: StoreClock,
        *,
        ca_bundle: str | None = None,
        timeout_s: float = 30.0,
        pace: Pace | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.clock = clock
        self._timeout_s = timeout_s
        self._pace = pace or Pace(None)
        self._sleep = sleep
        try:
            self._tls = ssl.create_default_context(cafile=ca_bundle)
        except (OSError, ssl.SSLError):
            raise StoreRefusedError(f"{ca_bundle}: not a bundle of certificates") from None

    def pause(self, number: int) -> None:
        """Waits before try `number` + 1: half a second, doubled each time, and up to as much again at random."""
        self._sleep(0.5 * 2 ** (number - 1) * (1 + random.random()))  # noqa: S311  # spreads load, guards nothing

    @staticmethod
    def shown_host(answer: Response) -> str:
        """The host that answered."""
        return answer.host

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        direct: bool = False,
        notes_date: bool = True,
        timeout_s: float | None = None,
    ) -> Response:
        """One request. Raises StoreUnavailableError where no answer came, StoreRefusedError where TLS failed.

        `direct` leaves proxies aside, for addresses of the machine itself.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        connection, target, extra = self._connection(parts, direct, timeout_s or self._timeout_s)
        lines = {"Host": parts.netloc.rpartition("@")[2], "User-Agent": "kraft-capture", **extra, **headers}
        lines["Content-Length"] = str(len(body))
        try:
            connection.request(method, target, body=self._pace.slices(body) if body else None, headers=lines)
            answer = connection.getresponse()
            received = answer.read(_ANSWER_BYTES_MAX)
            answer_headers = {name.lower(): value for name, value in answer.getheaders()}
        except ssl.SSLError as error:
            raise StoreRefusedError(f"{host}: {error.reason or 'TLS failed'}") from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailableError(f"{host}: {getattr(error, 'strerror', None) or type(error).__name__}") from None
        finally:
            connection.close()
        if notes_date:
            self.clock.note(answer_headers.get("date"))
        return Response(answer.status, answer_headers, received, host)

    def _connection(
        self, parts: SplitResult, direct: bool, timeout_s: float
    ) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
        """(a connection, the request's target, headers that a proxy needs)."""
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host:
            raise StoreRefusedError(f"{parts.scheme}://{host}: not an address of a web server")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        proxy = None if direct or _is_bypassed(host) else _proxy(parts.scheme)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        if proxy is None:
            if is_tls:
                return self._tls_connection(host, port, timeout_s), target, {}
            return http.client.HTTPConnection(host, port, timeout=timeout_s), target, {}
        asked = {"Proxy-Authorization": _basic(proxy)} if proxy.username else {}
        proxy_host, proxy_port = proxy.hostname or "", proxy.port or (443 if proxy.scheme == "https" else 80)
        if not is_tls:
            through = http.client.HTTPConnection(proxy_host, proxy_port, timeout=timeout_s)
            return through, f"http://{parts.netloc}{target}", asked
        tunnel = self._tls_connection(proxy_host, proxy_port, timeout_s)
        tunnel.set_tunnel(host, port, asked)
        return tunnel, target, {}

    def _tls_connection(self, host: str, port: int, timeout_s: float) -> http.client.HTTPSConnection:
        options: dict[str, Any] = {"timeout": timeout_s, "context": self._tls}
        return http.client.HTTPSConnection(host, port, **options)


def _is_bypassed(host: str) -> bool:
    bypass: Any = vars(urllib.request)["proxy_bypass_environment"]  # typeshed leaves it out
    return bool(bypass(host))


def _proxy(scheme: str) -> SplitResult | None:
    address = urllib.request.getproxies_environment().get(scheme)
    if not address:
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _basic(proxy: SplitResult) -> str:
    login = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
    return "Basic " + base64.b64encode(login.encode()).decode("ascii")
