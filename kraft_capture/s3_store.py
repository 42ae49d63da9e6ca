"""S3, and what speaks its protocol: conditional PUT, nothing else, so that a policy may allow nothing else."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from kraft_capture.credentials import CredentialChain
from kraft_capture.errors import StoreRefusedError, UsageError
from kraft_capture.http_requests import HttpClient, Response
from kraft_capture.sigv4 import signed_headers
from kraft_capture.stores import Put, put_with_retries

_SKEW_S = 60.0
"""A smaller difference of the clocks is left alone: S3 allows 15 minutes."""
_STALE = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"})
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired"})


@dataclass(frozen=True)
class S3Place:
    """A bucket and a prefix. `endpoint` is None for AWS itself."""

    bucket: str
    prefix: str
    region: str
    endpoint: str | None = None

    def url(self, key: str) -> str:
        """Of an object: the bucket is in the host on AWS, in the path elsewhere and where its name has a dot."""
        path = quote("/".join(part for part in (self.prefix, key) if part), safe="/~-._")
        if self.endpoint:
            return f"{self.endpoint.rstrip('/')}/{self.bucket}/{path}"
        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        if "." in self.bucket:
            return f"https://s3.{self.region}.{domain}/{self.bucket}/{path}"
        return f"https://{self.bucket}.s3.{self.region}.{domain}/{path}"


def s3_place(
    uri: str, region: str | None, endpoint: str | None, environment: Mapping[str, str] = os.environ
) -> S3Place:
    """The place that `s3://BUCKET/PREFIX` names; region and endpoint come from the environment where not given."""
    match = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([^?#]*))?", uri)
    if match is None:
        raise UsageError("--to: expected s3://BUCKET/PREFIX")
    region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or None
    return S3Place(match[1], (match[2] or "").strip("/"), region, endpoint)


class S3Store:
    """Puts objects by signed requests. `headers` go with each of them (server-side encryption)."""

    def __init__(
        self, place: S3Place, client: HttpClient, credentials: CredentialChain, headers: Mapping[str, str]
    ) -> None:
        self.clock = client.clock
        self._place = place
        self._client = client
        self._credentials = credentials
        self._headers = dict(headers)

    def put(self, key: str, data: bytes) -> Put:
        """See Store. Credentials that expired, and a clock that is wrong, are corrected once."""
        return put_with_retries(lambda: self._put(key, data), self._client)

    def _put(self, key: str, data: bytes) -> Response:
        answer = self._signed(key, data, fresh=False)
        if answer.status in (400, 403) and answer.code in _STALE | _SKEWED:
            answer = self._signed(key, data, fresh=answer.code in _STALE, skewed=answer.code in _SKEWED)
        if 300 <= answer.status < 400:
            raise StoreRefusedError(
                f"{self._client.shown_host(answer)} answers {answer.described}: redirects are not followed"
            )
        return answer

    def _signed(self, key: str, data: bytes, *, fresh: bool, skewed: bool = False) -> Response:
        url = self._place.url(key)
        skew_s = self.clock.skew_s()
        now_s = time.time() + (skew_s if skewed or abs(skew_s) > _SKEW_S else 0.0)
        headers = {"Content-Type": "application/octet-stream", "If-None-Match": "*", **self._headers}
        digest = hashlib.sha256(data).hexdigest()
        credentials = self._credentials.get(fresh=fresh)
        signed = signed_headers("PUT", url, headers, digest, credentials, self._place.region, now_s)
        return self._client.request("PUT", url, signed, data)
