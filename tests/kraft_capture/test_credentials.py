"""Where AWS credentials come from, in which order, and when they are asked for again."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from kraft_capture.clocks import StoreClock
from kraft_capture.credentials import CredentialChain
from kraft_capture.errors import StoreRefusedError, StoreUnavailableError
from kraft_capture.http_requests import HttpClient
from kraft_capture.sigv4 import Credentials
from tests.builders.http_store import Answer, HttpServer, Request

NOW_S = 1_795_687_200.0
KEYS = {"AccessKeyId": "AKIA", "SecretAccessKey": "secret", "Token": "token", "Expiration": "2026-11-26T11:00:00Z"}
FOUND = Credentials("AKIA", "secret", "token", NOW_S + 3600)


def chain(now_s: float = NOW_S, **environment: str) -> CredentialChain:
    return CredentialChain(HttpClient(StoreClock(), timeout_s=5), "eu-west-1", environment, now=lambda: now_s)


def test_the_environment_comes_first() -> None:
    found = chain(AWS_ACCESS_KEY_ID="A", AWS_SECRET_ACCESS_KEY="B", AWS_ROLE_ARN="r", AWS_WEB_IDENTITY_TOKEN_FILE="f")  # noqa: S106
    assert found.get() == Credentials("A", "B", None)


def test_web_identity(server: HttpServer, tmp_path: Path) -> None:
    def sts(request: Request) -> Answer:
        query = parse_qs(request.body.decode())
        assert (query["WebIdentityToken"], query["RoleArn"]) == (["jwt"], ["arn:role"])
        assert query["Action"] == ["AssumeRoleWithWebIdentity"]
        fields = {**KEYS, "SessionToken": KEYS["Token"]}
        text = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
        return 200, {}, f'<A xmlns="https://sts.amazonaws.com/"><Credentials>{text}</Credentials></A>'.encode()

    server.routes["POST /"] = sts
    (tmp_path / "token").write_text("jwt\n")
    environment = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"), "AWS_ROLE_ARN": "arn:role"}
    assert chain(AWS_ENDPOINT_URL_STS=f"{server.url}/", **environment).get() == FOUND
    server.routes["POST /"] = lambda request: (403, {}, b"<Error><Code>AccessDenied</Code></Error>")
    with pytest.raises(StoreRefusedError, match="403 AccessDenied"):
        chain(AWS_ENDPOINT_URL_STS=f"{server.url}/", **environment).get()


def test_a_container(server: HttpServer, tmp_path: Path) -> None:
    server.routes["GET /v1/credentials"] = lambda request: (200, {}, json.dumps(KEYS).encode())
    (tmp_path / "token").write_text("from the file\n")
    environment = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{server.url}/v1/credentials"}
    assert chain(**environment, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "token")).get() == FOUND
    assert server.requests[0].headers["authorization"] == "from the file"
    with pytest.raises(StoreRefusedError, match="neither HTTPS nor of this machine"):
        chain(AWS_CONTAINER_CREDENTIALS_FULL_URI="http://example.com/").get()


def instance(server: HttpServer) -> dict[str, str]:
    roles = "/latest/meta-data/iam/security-credentials/"
    server.routes["PUT /latest/api/token"] = lambda request: (200, {}, b"session")
    server.routes[f"GET {roles}"] = lambda request: (200, {}, b"kafka role")
    server.routes[f"GET {roles}kafka%20role"] = lambda request: (200, {}, json.dumps(KEYS).encode())
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url}


def test_an_instance_by_imdsv2(server: HttpServer) -> None:
    assert chain(**instance(server)).get() == FOUND
    first, *rest = server.requests
    assert (first.method, first.headers["x-aws-ec2-metadata-token-ttl-seconds"]) == ("PUT", "21600")
    assert {request.headers["x-aws-ec2-metadata-token"] for request in rest} == {"session"}


def test_they_are_asked_for_again_before_they_expire(server: HttpServer) -> None:
    environment = instance(server)
    now_s = NOW_S
    found = CredentialChain(HttpClient(StoreClock()), "eu-west-1", environment, now=lambda: now_s)
    found.get()
    now_s = NOW_S + 3600 - 301
    found.get()
    assert len(server.requests) == 3
    now_s = NOW_S + 3600 - 299
    found.get()
    assert len(server.requests) == 6
    server.routes["PUT /latest/api/token"] = lambda request: (503, {}, b"")
    assert found.get() == FOUND, "still valid"
    now_s = NOW_S + 3600
    with pytest.raises(StoreUnavailableError):
        found.get()


def test_there_are_none() -> None:
    with pytest.raises(StoreRefusedError, match="no AWS credentials"):
        chain(AWS_EC2_METADATA_DISABLED="true").get()
    with pytest.raises(StoreUnavailableError, match="no AWS credentials"):
        chain(AWS_EC2_METADATA_SERVICE_ENDPOINT="http://127.0.0.1:9").get()


def test_an_answer_that_is_none(server: HttpServer) -> None:
    for body in (b"", b"[]", b"{}", b"<html>"):
        server.routes["GET /v1"] = lambda request, body=body: (200, {}, body)
        with pytest.raises(StoreRefusedError, match="container credentials"):
            chain(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{server.url}/v1").get()
