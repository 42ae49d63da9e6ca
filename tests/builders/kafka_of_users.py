"""A real Kafka with StandardAuthorizer, a controller and a broker, whose users log in by name and make admin calls."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.builders.admin_calls import SUPER_USER, USERS, AdminCall
from tests.builders.kafka_jars import class_path
from tests.builders.one_kafka import CLUSTER_ID, JAVA
from tests.builders.ports import free_port

LOG4J: Final = ("log4j-slf4j-impl-2.25.4", ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",))
"""What connects the release's slf4j with its log4j: Kafka's own scripts have it, its published jars do not need it."""
LOGGERS: Final = """<Configuration status="WARN">
<Appenders>
<Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
<File name="authorizer" fileName="AUTHORIZER_LOG"><PatternLayout pattern="[%d] %p %m (%c)%n"/></File>
</Appenders>
<Loggers>
<Root level="WARN"><AppenderRef ref="out"/></Root>
<Logger name="kafka.authorizer.logger" level="DEBUG" additivity="false"><AppenderRef ref="authorizer"/></Logger>
</Loggers>
</Configuration>
"""
"""As Kafka's config/log4j2.yaml, with allowed operations: DEBUG where that has INFO."""
LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS: Final = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "SASL",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:broker;User:{SUPER_USER}",
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 4000,
    "offsets.topic.replication.factor": 1,
    "num.network.threads": 1,
    "num.io.threads": 4,
    "log.cleaner.enable": "false",
}


class KafkaOfUsers:
    """The controller's log dir is `log_dir`, and its authorizer's log `authorizer_log`."""

    def __init__(self, work: Path, classpath: str, project_root: Path) -> None:
        self.log_dir = work / "controller"
        self.authorizer_log = work / "controller-authorizer.log"
        self._work = work
        self._classpath = f"{classpath}:{class_path(project_root, *LOG4J)}"
        self._controller, self._broker = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        users = " ".join(f'user_{name}="{name}-secret"' for name in ("broker", *USERS))
        login = f'{LOGIN} username="broker" password="broker-secret" {users};'
        shared = {
            **SETTINGS,
            "controller.quorum.voters": f"1@{self._controller}",
            "listener.name.sasl.plain.sasl.jaas.config": login,
        }
        roles = {"controller": f"CONTROLLER://{self._controller}", "broker": f"SASL://{self._broker}"}
        for node_id, (role, listener) in enumerate(roles.items(), start=1):
            settings = {**shared, "process.roles": role, "node.id": node_id, "listeners": listener}
            if role == "controller":
                del settings["inter.broker.listener.name"], settings["sasl.mechanism.inter.broker.protocol"]
            self._start(role, {**settings, "log.dirs": self._work / role})

    def _start(self, name: str, settings: dict[str, object]) -> None:
        properties, loggers = self._work / f"{name}.properties", self._work / f"{name}.xml"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        loggers.write_text(LOGGERS.replace("AUTHORIZER_LOG", str(self._work / f"{name}-authorizer.log")))
        java = [*JAVA, f"-Dlog4j2.configurationFile={loggers}", "-cp", self._classpath]
        with (self._work / f"{name}.out").open("ab") as output:
            formatting = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
            subprocess.run(formatting, stdout=output, stderr=output, timeout=60, check=True)
            self._processes.append(
                subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=output, stderr=output)
            )

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(60)

    def run(self, groups: Sequence[Sequence[AdminCall]]) -> list[str]:
        """Makes the calls, those of a group at the same time; of each "ok", or the class of its error."""
        lines = "".join("".join(f"{call.line}\n" for call in group) + "\n" for group in groups)
        program = Path(__file__).parent / "java" / "AdminCalls.java"
        with (self._work / "calls.out").open("wb") as errors:
            ended = subprocess.run(
                [*JAVA, "-cp", self._classpath, program, self._broker],
                input=lines.encode(),
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=200,
                check=True,
            )
        return [line.split("\t")[2] for line in ended.stdout.decode().splitlines()]


@contextlib.contextmanager
def kafka_of_users(work: Path, classpath: str, project_root: Path) -> Iterator[KafkaOfUsers]:
    """A started one; its processes are gone afterwards, whatever happens."""
    kafka = KafkaOfUsers(work, classpath, project_root)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()
