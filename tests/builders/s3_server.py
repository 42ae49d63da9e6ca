"""A local S3 server in a process of its own, addressed as a real one is, by the usual environment."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders.ports import free_port, wait_for_port


@contextlib.contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch, bucket: str) -> Iterator[tuple[Any, int]]:
    """(boto's client, the port) of a server with an empty bucket. Skips where moto is not installed."""
    pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    port = free_port()
    usual = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in usual.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        client = boto3.client("s3")
        client.create_bucket(Bucket=bucket)
        yield client, port
    finally:
        process.kill()
        process.wait()
