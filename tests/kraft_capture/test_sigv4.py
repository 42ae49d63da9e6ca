"""Signatures, compared with botocore's."""

from __future__ import annotations

import datetime
import hashlib
import random
import string

import pytest

from kraft_capture.s3_store import S3Place
from kraft_capture.sigv4 import Credentials, signed_headers

REQUEST_COUNT = 1_000
LETTERS = string.ascii_letters + string.digits + " ~!*'()-._/+=@:,;äß€"


def random_text(chance: random.Random, size: int, letters: str = LETTERS) -> str:
    return "".join(chance.choice(letters) for _ in range(chance.randint(1, size)))


@pytest.mark.slow
def test_a_thousand_random_requests_are_signed_as_botocore_signs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials as BotocoreCredentials

    chance = random.Random(4)  # noqa: S311
    for _ in range(REQUEST_COUNT):
        moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
            seconds=chance.randint(0, 10**8)
        )
        monkeypatch.setattr(auth, "get_current_datetime", lambda moment=moment: moment.replace(tzinfo=None))
        endpoint = chance.choice([None, None, "http://127.0.0.1:9000", "https://minio.example:443", "http://[::1]:9"])
        region = chance.choice(["us-east-1", "eu-central-1", "cn-north-1"])
        bucket = chance.choice(["captures", "captures.example", "a-b-c"])
        url = S3Place(bucket, random_text(chance, 8).strip("/"), region, endpoint).url(random_text(chance, 40))
        if chance.random() < 0.3:
            url += "?" + "&".join(
                f"{random_text(chance, 5, string.ascii_letters)}={n}" for n in range(chance.randint(1, 4))
            )
        headers = {"If-None-Match": "*", "Content-Type": "application/octet-stream", "User-Agent": "somebody"}
        for number in range(chance.randint(0, 3)):
            headers[f"x-amz-meta-{number}"] = f"  {random_text(chance, 12, string.printable[:95])}  "
        token = random_text(chance, 60, string.ascii_letters + "+/=") if chance.random() < 0.5 else None
        keys = (random_text(chance, 20, string.ascii_uppercase), random_text(chance, 40, string.ascii_letters + "+/"))
        body = chance.randbytes(chance.randint(0, 100))
        digest = hashlib.sha256(body).hexdigest()
        method = chance.choice(["PUT", "PUT", "GET", "HEAD"])
        ours = signed_headers(method, url, headers, digest, Credentials(*keys, token), region, moment.timestamp())
        request = AWSRequest(method, url, headers=headers, data=body)
        # As for S3 over plain HTTP and HTTPS alike: the payload is signed.
        request.context["client_config"] = None
        signer = auth.S3SigV4Auth(BotocoreCredentials(*keys, token), "s3", region)
        monkeypatch.setattr(signer, "_should_sha256_sign_payload", lambda request: True)
        signer.add_auth(request)
        theirs = dict(request.headers)
        assert ours["Authorization"] == theirs["Authorization"], (method, url)
        assert ours["X-Amz-Date"] == theirs["X-Amz-Date"]
        assert ours.get("X-Amz-Security-Token") == theirs.get("X-Amz-Security-Token")


def test_credentials_are_never_shown() -> None:
    assert "secret" not in repr(Credentials("AKIA", "secret", "secret"))
