"""AWS Signature Version 4 as S3 wants it: the path is encoded once, not normalised; the payload's hash is signed."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_UNSIGNED = frozenset({"expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"})


@dataclass(frozen=True, repr=False)
class Credentials:
    """Keys of an identity; never shown. `expires_s` is seconds since 1970, None where they do not expire."""

    access_key: str
    secret_key: str
    session_token: str | None = None
    expires_s: float | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


def signed_headers(
    method: str,
    url: str,
    headers: Mapping[str, str],
    payload_sha256: str,
    credentials: Credentials,
    region: str,
    now_s: float,
) -> dict[str, str]:
    """The headers, with `X-Amz-Date`, `X-Amz-Content-SHA256`, `X-Amz-Security-Token` and `Authorization` among them.

    `url` is percent-encoded already; `now_s` is the time by the store's clock, in seconds since 1970.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    parts = urlsplit(url)
    lines = dict(headers)
    lines["X-Amz-Date"] = stamp
    lines["X-Amz-Content-SHA256"] = payload_sha256
    if credentials.session_token:
        lines["X-Amz-Security-Token"] = credentials.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in lines.items() if name.lower() not in _UNSIGNED}
    signed.setdefault("host", _host(url))
    names = ";".join(sorted(signed))
    canonical = "\n".join([
        method.upper(),
        parts.path or "/",
        _canonical_query(parts.query),
        *(f"{name}:{signed[name]}" for name in sorted(signed)),
        "",
        names,
        payload_sha256,
    ])  # fmt: skip
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    signature = hmac.new(_signing_key(credentials, stamp[:8], region), to_sign.encode(), hashlib.sha256).hexdigest()
    lines["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return lines


def _signing_key(credentials: Credentials, day: str, region: str) -> bytes:
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _canonical_query(query: str) -> str:
    pairs = [part.partition("=") for part in query.split("&")] if query else []
    return "&".join(f"{name}={value}" for name, value in sorted((name, value) for name, _, value in pairs))


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in (None, usual) else f"{host}:{parts.port}"
