"""AWS credentials from where a workload has them: environment, web identity, container, instance (IMDSv2).

Profiles and single sign-on belong to people; use `--pipe-to 'aws s3 cp - {uri}'` for them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable
from urllib.parse import quote, urlencode, urlsplit

from kraft_capture.errors import StoreRefusedError, StoreUnavailableError
from kraft_capture.http_requests import HttpClient, Response
from kraft_capture.sigv4 import Credentials

_REFRESH_BEFORE_S = 300
_CONTAINER_HOST = "http://169.254.170.2"
_CONTAINER_HOSTS = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23", "localhost", "127.0.0.1", "::1"})
_INSTANCE_HOST = "http://169.254.169.254"
_METADATA_TIMEOUT_S = 2.0


class CredentialChain:
    """Gives credentials that are valid for some minutes, asking again before they expire."""

    def __init__(
        self,
        client: HttpClient,
        region: str,
        environment: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._region = region
        self._environment = os.environ if environment is None else environment
        self._now = now
        self._current: Credentials | None = None

    def get(self, *, fresh: bool = False) -> Credentials:
        """The credentials to sign with; `fresh` asks again. Raises StoreRefusedError where there are none.

        Old ones that are still valid are used where their source does not answer.
        """
        current = self._current
        if current is not None and not fresh and (current.expires_s or 1e18) - self._now() > _REFRESH_BEFORE_S:
            return current
        try:
            self._current = self._find()
        except (StoreRefusedError, StoreUnavailableError):
            if current is None or fresh or (current.expires_s or 1e18) <= self._now():
                raise
            return current
        return self._current

    def _find(self) -> Credentials:
        environment = self._environment
        if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
            token = environment.get("AWS_SESSION_TOKEN") or None
            return Credentials(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], token)
        if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
            return self._web_identity()
        for name in ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            if environment.get(name):
                return self._container(environment[name])
        if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            raise StoreRefusedError("no AWS credentials: neither environment, web identity nor container has them")
        return self._instance()

    def _web_identity(self) -> Credentials:
        environment = self._environment
        token = _read(environment["AWS_WEB_IDENTITY_TOKEN_FILE"])
        query = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": environment["AWS_ROLE_ARN"],
            "RoleSessionName": environment.get("AWS_ROLE_SESSION_NAME") or "kraft-capture",
            "WebIdentityToken": token,
        }
        url = environment.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{self._region}.{_domain(self._region)}/"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self._client.request("POST", url, headers, urlencode(query).encode(), notes_date=False)
        _require_ok(answer, "web identity")
        text = answer.body.decode("utf-8", "replace")
        fields = dict(re.findall(r"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration)>([^<&]*)</", text))
        return _credentials(fields, "web identity", "SessionToken")

    def _container(self, address: str) -> Credentials:
        url = address if "://" in address else _CONTAINER_HOST + address
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in _CONTAINER_HOSTS:
            raise StoreRefusedError("container credentials: an address that is neither HTTPS nor of this machine")
        token = self._environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        file = self._environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        if file:
            token = _read(file)
        headers = {"Authorization": token} if token else {}
        answer = self._client.request("GET", url, headers, direct=True, notes_date=False, timeout_s=_METADATA_TIMEOUT_S)
        _require_ok(answer, "container credentials")
        return _credentials(_json(answer, "container credentials"), "container credentials", "Token")

    def _instance(self) -> Credentials:
        base = (self._environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _INSTANCE_HOST).rstrip("/")
        what = "instance credentials (IMDSv2)"

        def ask(method: str, path: str, headers: dict[str, str]) -> Response:
            answer = self._client.request(
                method, base + path, headers, direct=True, notes_date=False, timeout_s=_METADATA_TIMEOUT_S
            )
            _require_ok(answer, what)
            return answer

        try:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
            token = ask("PUT", "/latest/api/token", lifetime).body.decode("ascii", "replace")
            headers = {"X-aws-ec2-metadata-token": token}
            roles = "/latest/meta-data/iam/security-credentials/"
            role = ask("GET", roles, headers).body.decode("utf-8", "replace").split("\n")[0].strip()
            fields = _json(ask("GET", roles + quote(role, safe=""), headers), what)
        except StoreUnavailableError as error:
            raise StoreUnavailableError(
                f"no AWS credentials in the environment, and of the instance: {error}"
            ) from None
        return _credentials(fields, what, "Token")


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise StoreRefusedError(f"{path}: {error.strerror}") from None


def _require_ok(answer: Response, what: str) -> None:
    if answer.status >= 500 or answer.status == 429:
        raise StoreUnavailableError(f"{what}: {answer.described}")
    if answer.status != 200:
        raise StoreRefusedError(f"{what}: {answer.described}")


def _json(answer: Response, what: str) -> dict[str, str]:
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StoreRefusedError(f"{what}: an answer that is not JSON")
    return document


def _credentials(fields: Mapping[str, str], what: str, token: str) -> Credentials:
    access_key, secret_key = fields.get("AccessKeyId"), fields.get("SecretAccessKey")
    if not access_key or not secret_key:
        raise StoreRefusedError(f"{what}: an answer without keys")
    return Credentials(access_key, secret_key, fields.get(token) or None, _expiry(fields.get("Expiration")))


def _expiry(text: str | None) -> float | None:
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", text or "")
    if match is None:
        return None
    return datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
