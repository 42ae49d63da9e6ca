"""Where printed commands ask a broker: at a listener that wants no login, and with a word where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.records.record import write_metadata_value
from tests.builders.logs import led, write_node

PLAINTEXT, SASL_SSL = 0, 3


@pytest.mark.parametrize(("protocols", "port"), [((SASL_SSL, PLAINTEXT), 9001), ((SASL_SSL, SASL_SSL), 9000)])
def test_a_listener_without_a_login_comes_first(
    kraft_audit: Any, tmp_path: Path, protocols: tuple[int, ...], port: int
) -> None:
    log = led(1, (1, 2, 3))
    points = [
        {"name": f"L{number}", "host": "b11.example", "port": 9000 + number, "securityProtocol": protocol}
        for number, protocol in enumerate(protocols)
    ]
    registered = {"brokerId": 11, "brokerEpoch": 2, "fenced": False, "endPoints": points}
    log.append(write_metadata_value("RegisterBrokerRecord", 0, registered))
    log.append(write_metadata_value("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": 21}))
    write_node(tmp_path / "disks", 1, log.content)
    words = ["--gone", "2,3", "--from", "1", "--node-id", "5", "--endpoint", "c5.example:9093"]
    ended = kraft_audit("rescue", tmp_path / "disks", *words, "--out", tmp_path / "new", "-o", "json")
    assert ended.code == 0, ended
    texts = [step["text"] for step in json.loads(ended.out)["procedure"]]
    assert f"11 (b11.example:{port})" in next(text for text in texts if text.startswith("Stop all brokers"))
    is_said = any(text.startswith("Broker 11 wants a login or TLS at every listener.") for text in texts)
    assert is_said is (PLAINTEXT not in protocols)
