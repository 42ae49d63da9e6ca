"""A cluster whose users log in by SASL/PLAIN, and whose brokers log in at a second listener of the controllers.

Brokers pass on what users ask for, and the controller decides: one without its authorizer lets everybody do everything.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.drills.kafka_node import KafkaNode, quiet_port

if TYPE_CHECKING:
    from tests.drills.real_cluster import RealCluster

BROKERS, USERS = "BROKERS", "USERS"
"""The controllers' listener for brokers, and the brokers' for users."""
LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROTOCOLS: Final = f"CONTROLLER:PLAINTEXT,{BROKERS}:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,{USERS}:SASL_PLAINTEXT"
ENCRYPTED: Final = f"CONTROLLER:SASL_SSL,{BROKERS}:SSL,PLAINTEXT:PLAINTEXT,{USERS}:SASL_PLAINTEXT"
STORE, STORE_PASSWORD = "keys.p12", "of-keys"
MALLORY: Final = "mallory"
"""May write to the topic `orders`, and nothing else."""
REFUSED: Final = "uthorization failed"


def log_in(node: KafkaNode) -> None:
    """Gives a node of a cluster that has not started yet its listeners and logins."""
    node.extra |= {
        "listener.security.protocol.map": PROTOCOLS,
        "sasl.enabled.mechanisms": "PLAIN",
        "super.users": "User:ANONYMOUS;User:broker",
    }
    if node.role == "controller":
        node.more_listeners[BROKERS] = quiet_port()
        node.extra |= {
            "controller.listener.names": f"CONTROLLER,{BROKERS}",
            f"listener.name.{BROKERS.lower()}.plain.sasl.jaas.config": f'{LOGIN} user_broker="of-brokers";',
        }
    else:
        node.more_listeners[USERS] = quiet_port()
        node.extra |= {
            "controller.listener.names": BROKERS,
            "sasl.mechanism.controller.protocol": "PLAIN",
            f"listener.name.{BROKERS.lower()}.plain.sasl.jaas.config": (
                f'{LOGIN} username="broker" password="of-brokers";'
            ),
            f"listener.name.{USERS.lower()}.plain.sasl.jaas.config": f'{LOGIN} user_{MALLORY}="of-{MALLORY}";',
        }


def encrypt(node: KafkaNode, store: Path) -> None:
    """Controllers take logins over TLS alone, and certificates from brokers; all nodes have the same key."""
    shared = {"location": store, "password": STORE_PASSWORD, "type": "PKCS12"}
    node.extra |= {
        "listener.security.protocol.map": ENCRYPTED,
        "super.users": "User:ANONYMOUS;User:controller;User:CN=node",
        **{f"ssl.{kind}.{key}": value for kind in ("keystore", "truststore") for key, value in shared.items()},
    }
    if node.role == "controller":
        login = f'{LOGIN} username="controller" password="of-nodes" user_controller="of-nodes";'
        node.extra |= {
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": login,
            f"listener.name.{BROKERS.lower()}.ssl.client.auth": "required",
        }


def make_keys(folder: Path) -> Path:
    """A key with a certificate of its own for 127.0.0.1, which is trusted too."""
    store = folder / STORE
    words = ["keytool", "-genkeypair", "-alias", "node", "-keyalg", "EC", "-dname", "CN=node", "-validity", "2"]
    words += ["-ext", "san=ip:127.0.0.1", "-keystore", str(store), "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return store


def login_of_drill(folder: Path, store: Path) -> Path:
    """How the drill itself looks at the controllers."""
    file = folder / "drill-login.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="controller" password="of-nodes";\n'
        f"ssl.truststore.location={store}\nssl.truststore.password={STORE_PASSWORD}\n"
    )
    return file


def assert_mallory_is_refused(cluster: RealCluster) -> None:
    """Who may only write to a topic neither creates one nor deletes it."""
    login = cluster.work / f"{MALLORY}.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="{MALLORY}" password="of-{MALLORY}";\n'
    )
    for broker in cluster.only_brokers.values():
        place = f"127.0.0.1:{broker.more_listeners[USERS]}"
        ask = ["--bootstrap-server", place, "--command-config", str(login)]
        created = cluster.tools.run("kafka-topics", *ask, "--create", "--topic", "of-mallory", "--partitions", "1")
        assert created.code != 0, created
        assert REFUSED in created.text, created.text
        deleted = cluster.tools.run("kafka-topics", *ask, "--delete", "--topic", "orders")
        assert deleted.code != 0, deleted
        assert REFUSED in deleted.text, deleted.text
    there = {row[1] for row in cluster.tools.must_ask("topics", cluster.server).rows}
    assert "of-mallory" not in there
    assert "orders" in there
