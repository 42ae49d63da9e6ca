"""What is kept of a server.properties: who the node is and who votes, never a secret."""

from __future__ import annotations

import pytest

from kraft_codec.errors import CodecError, Reason
from kraft_codec.files.configuration import KEPT_SETTINGS, NodeConfiguration, parse_configuration

WHOLE = b"""
# a combined node
process.roles=broker, controller
node.id=3
controller.quorum.voters=1@c1.example:9093,2@c2.example:9093,\\
    3@[2001:db8::3]:9093
metadata.log.dir = /meta
log.dirs=/data/a,/data/b
listeners=SASL_SSL://:9092,CONTROLLER://10.0.0.3:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:SSL
sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
sasl.mechanism.inter.broker.protocol=OAUTHBEARER
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
controller.quorum.fetch.timeout.ms=2000
broker.session.timeout.ms=9000
ssl.keystore.password=hunter2
super.users=User:admin
"""


def test_the_kept_settings_and_what_they_say() -> None:
    configuration = parse_configuration(WHOLE, "conf/server.properties")
    assert configuration.node_id == 3
    assert configuration.roles == ("broker", "controller")
    assert configuration.voters == (1, 2, 3)
    assert configuration.bootstrap_servers == ()
    assert configuration.log_dirs == ("/meta", "/data/a", "/data/b")
    assert configuration.security_protocols == ("SASL_SSL:SASL_SSL", "CONTROLLER:SSL")
    assert configuration.sasl_mechanisms == ("OAUTHBEARER", "PLAIN", "SCRAM-SHA-512")
    assert configuration.timeouts == ("controller.quorum.fetch.timeout.ms=2000", "broker.session.timeout.ms=9000")
    assert {key for key, _ in configuration.settings} < KEPT_SETTINGS.keys()
    assert configuration.left_out == ()
    assert "hunter2" not in configuration.to_json()
    assert "admin" not in configuration.to_json()
    assert NodeConfiguration.from_json(configuration.to_json()) == configuration


@pytest.mark.parametrize(
    "text",
    [
        "log.dirs=/a,\\\n  ssl.keystore.password=hunter2",
        "log.dirs=/a,\\\n  ssl.keystore.password: hunter2",
        "log.dirs=/a,\\\n  ssl.keystore.password hunter2",
        "controller.quorum.voters=1@a:9093,\\\n sasl.jaas.config=x hunter2;",
        "listeners=SASL_SSL://user:hunter2@a:9092",
        "node.id=3 # hunter2",
        "authorizer.class.name=${file:/run/hunter2:class}",
        "controller.quorum.election.timeout.ms=hunter2",
    ],
)
def test_a_value_of_another_form_is_left_out_by_name(text: str) -> None:
    configuration = parse_configuration(text.encode(), "server.properties")
    assert configuration.settings == ()
    assert configuration.left_out == (text.partition("=")[0],)
    assert "hunter2" not in configuration.to_json()


@pytest.mark.parametrize(
    ("text", "voters"),
    [
        ("controller.quorum.voters=2@b:9093, 1@a:9093", (1, 2)),
        ("controller.quorum.bootstrap.servers=a:9093,b:9093", ()),
        ("controller.quorum.voters=\ncontroller.quorum.bootstrap.servers=a:9093", ()),
        ("node.id=1", None),
        ("controller.quorum.voters=${env:VOTERS}\ncontroller.quorum.bootstrap.servers=a:9093", None),
    ],
)
def test_voters_are_known_none_or_not_known(text: str, voters: tuple[int, ...] | None) -> None:
    assert parse_configuration(text.encode(), "server.properties").voters == voters


def test_a_broker_id_names_the_node_of_a_configuration_without_node_id() -> None:
    assert parse_configuration(b"broker.id=7", "server.properties").node_id == 7


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"node.id=\\u00g0", Reason.BAD_FILE), (b"#" * ((1 << 20) + 1), Reason.LIMIT)],
)
def test_what_java_refuses_is_refused(content: bytes, reason: Reason) -> None:
    with pytest.raises(CodecError) as refused:
        parse_configuration(content, "server.properties")
    assert refused.value.reason is reason
