"""The config that `rescue` writes for the new controller: the old one's own file, and never one that starts open."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import kraft_audit as audit
from kraft_audit.recovery.lost_quorum.controller_config import BLANKS, FIRST_BLANKS, blank
from tests.builders.captures import SMALL_CORPUS

PLACE: Final = "127.0.0.1:19703"
"""Where node 3 listens, by the voter set."""
SECRET: Final = "Xq7-hidden"  # noqa: S105  # no password of anything
OWN: Final = f"""# node 3
node.id=3
process.roles=controller
listeners=CONTROLLER://:19703
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:SASL_SSL
controller.quorum.voters=1@127.0.0.1:19701,2@127.0.0.1:19702,3@127.0.0.1:19703
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
ssl.keystore.password={SECRET}
log.dirs=/var/lib/kafka
"""
CAPTURED: Final = f"""# kraft-capture: the settings that audits read; all others are left out
{OWN.replace(f"ssl.keystore.password={SECRET}", "").replace("super.users=User:admin", "")}"""
Rescued = Callable[..., dict[str, Any]]


@pytest.fixture
def rescued(kraft_audit: Any, one_left: Path, tmp_path: Path) -> Rescued:
    """What `rescue` of node 3 into `new` printed, as JSON."""

    def run(*more: object) -> dict[str, Any]:
        words = ["rescue", one_left, "--gone", "1,2", "--from", "3", "--out", tmp_path / "new", *more, "-o", "json"]
        ended = kraft_audit(*words)
        assert (ended.code, ended.err) == (0, ""), ended
        written: dict[str, Any] = json.loads(ended.out)
        return written

    return run


def file_in(folder: Path, text: str, name: str = "own.properties") -> Path:
    (folder / name).write_text(text)
    return folder / name


def step(written: dict[str, Any], beginning: str) -> dict[str, Any]:
    (found,) = [each for each in written["procedure"] if each["text"].startswith(beginning)]
    return dict(found)


def test_the_old_file_goes_on_with_the_lines_that_must_differ(rescued: Rescued, tmp_path: Path) -> None:
    own = file_in(tmp_path, OWN)
    written = rescued("--config", f"3={own}")
    config = tmp_path / "new-server.properties"
    changed = f"controller.quorum.bootstrap.servers={PLACE}\nlog.dirs={tmp_path}/new\n"
    kept = "".join(
        f"{line}\n" for line in OWN.splitlines() if not line.startswith(("controller.quorum.voters", "log.dirs"))
    )
    assert config.read_text() == f"{kept}\n# kraft-audit rescue: what differs from it\n{changed}"
    assert config.stat().st_mode & 0o777 == 0o600
    assert own.read_text() == OWN
    said = step(written, "The controller's config")
    assert said["text"] == (
        f"The controller's config is {config}: {own}, authorizer, protocols and passwords included, with these lines "
        "in place of its own, and without controller.quorum.voters. It listens on CONTROLLER:SASL_SSL. Kafka's tools "
        f"log in as the controller does, with {tmp_path}/new-client.properties: passwords are in it, and on another "
        "host they need that file and its keystores too. Add sasl.jaas.config to it: the login stands in a JAAS file "
        "of the old host."
    )
    assert said["settings"] == changed.splitlines()
    assert step(written, "Copy what")["text"] == (
        f"Copy what is in {tmp_path}/new to a new empty folder on host 127.0.0.1, chown it to Kafka's user, and set "
        f"log.dirs in {config} to that folder."
    )
    taken = f"Take {config} to that host, format nothing, and start the controller with it."
    assert step(written, "Take ")["text"] == taken
    for shown in (json.dumps(written), (tmp_path / "new" / "rescue.json").read_text()):
        assert SECRET not in shown
        assert "User:admin" not in shown


@pytest.mark.parametrize("place", ["node-3", ""])
def test_a_whole_file_that_lies_with_the_disk_is_taken(
    rescued: Rescued, one_left: Path, tmp_path: Path, place: str
) -> None:
    own = file_in(one_left / place, OWN, "server.properties")
    written = rescued()
    assert written["config"]["source"] == str(own)
    assert SECRET in (tmp_path / "new-server.properties").read_text()


def test_without_a_file_the_printed_lines_do_not_start(rescued: Rescued, tmp_path: Path) -> None:
    written = rescued()
    assert not (tmp_path / "new-server.properties").exists()
    texts = [each["text"] for each in written["procedure"]]
    said = step(written, "Otherwise write")
    assert texts[texts.index(said["text"]) - 1] == (
        "If the server.properties of controller 3 is left, repeat rescue with --config 3=FILE and another --out, and "
        "follow what that prints."
    )
    assert said["text"] == (
        "Otherwise write controller.properties by hand: its lines stand in the note to this step. No config of an old "
        "controller was read, so these lines are not a whole config. Fill in every name in capitals as the old "
        "controllers had it, "
        "the authorizer and the "
        "protocols first. Remove such a line only if they had none: Kafka does not start while one is left. Add every "
        "line of theirs that begins with ssl., sasl., listener.name., delegation.token. or config.providers. Without "
        "the authorizer any user may create and delete topics. Without the policies every topic and config is "
        "accepted, and without its secret key no delegation token is valid. If the controllers took SASL or SSL "
        "alone, add --command-config FILE to every command below that asks one: FILE holds security.protocol, and "
        "what that needs."
    )
    assert said["settings"] == [
        "authorizer.class.name=AUTHORIZER_CLASS_NAME",
        "super.users=SUPER_USERS",
        "listener.security.protocol.map=LISTENER_SECURITY_PROTOCOL_MAP",
        f"listeners=CONTROLLER://{PLACE}",
        "controller.listener.names=CONTROLLER",
        "early.start.listeners=EARLY_START_LISTENERS",
        "principal.builder.class=PRINCIPAL_BUILDER_CLASS",
        "create.topic.policy.class.name=CREATE_TOPIC_POLICY_CLASS_NAME",
        "alter.config.policy.class.name=ALTER_CONFIG_POLICY_CLASS_NAME",
        "process.roles=controller",
        "node.id=3",
        f"controller.quorum.bootstrap.servers={PLACE}",
        f"log.dirs={tmp_path}/new",
    ]


def test_what_kraft_capture_kept_of_a_file_fills_in_blanks(rescued: Rescued, one_left: Path, kraft_audit: Any) -> None:
    """It has no super.users and no password: with it alone no broker could log in."""
    kept = file_in(one_left / "node-3", CAPTURED, "server.properties")
    written = rescued()
    said = step(written, "Otherwise write")
    assert said["text"].startswith(
        "Otherwise write controller.properties by hand: its lines stand in the note to this step. Only some settings "
        f"of the old controller are in {kept}, so these lines are not a whole config. "
    )
    assert " It listens on CONTROLLER:SASL_SSL. " in said["text"]
    assert said["settings"][:3] == [
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=SUPER_USERS",
        "listener.security.protocol.map=CONTROLLER:SASL_SSL",
    ]
    other = one_left.parent / "other"
    words = ["rescue", one_left, "--gone", "1,2", "--from", "3", "--out", other, "--config", f"3={kept}"]
    ended = kraft_audit(*words)
    refused = f"{kept} is what kraft-capture kept of a config: name the whole file of its node."
    assert (ended.code, ended.error_lines) == (1, [f"kraft-audit: {one_left}: refused: {refused}"])


def test_an_old_controller_without_authorizer_leaves_no_blank_for_it(rescued: Rescued, one_left: Path) -> None:
    lines = [line for line in CAPTURED.splitlines() if not line.startswith("authorizer")]
    file_in(one_left / "node-3", "\n".join(lines), "server.properties")
    settings = step(rescued(), "Otherwise write")["settings"]
    assert settings[0] == f"super.users={blank('super.users')}"


def test_a_config_that_cannot_be_one_is_refused(kraft_audit: Any, one_left: Path, tmp_path: Path) -> None:
    words = ["rescue", one_left, "--gone", "1,2", "--from", "3", "--out", tmp_path / "new"]
    own, other = file_in(tmp_path, OWN), file_in(tmp_path, OWN.replace("node.id=3", "node.id=7"), "other.properties")
    broker = file_in(tmp_path, OWN.replace("roles=controller", "roles=broker"), "broker.properties")
    no_controller = f"{broker} is no controller's: process.roles in it does not say controller."
    for option, code, said in (
        (f"7={other}", 1, f"{one_left}: refused: --config: node 7 is neither a voter nor a registered broker."),
        (f"2={own}", 3, f"{own}: it is of node 3, not of node 2"),
        (f"3={broker}", 1, f"{one_left}: refused: {no_controller}"),
        (f"3={tmp_path}/none", 3, f"{tmp_path}/none: No such file or directory"),
    ):
        ended = kraft_audit(*words, "--config", option)
        assert (ended.code, ended.error_lines) == (code, [f"kraft-audit: {said}"])
        assert not (tmp_path / "new").exists()
    (tmp_path / "new-server.properties").write_text("kept")
    ended = kraft_audit(*words, "--config", f"3={own}")
    assert (ended.code, ended.out) == (2, "")
    assert (tmp_path / "new-server.properties").read_text() == "kept"


def test_a_moved_controller_listens_where_it_is_now(rescued: Rescued, tmp_path: Path) -> None:
    """With the file of the node whose copy it goes on from."""
    own = file_in(tmp_path, OWN + "advertised.listeners=CONTROLLER://c3.example:19703\nbroker.id=3\n")
    written = rescued("--config", f"3={own}", "--node-id", "9", "--endpoint", "c9.example:9095")
    said = step(written, "The controller's config")
    assert said["settings"] == [
        "node.id=9",
        "listeners=CONTROLLER://c9.example:9095",
        "controller.quorum.bootstrap.servers=c9.example:9095",
        f"log.dirs={tmp_path}/new",
    ]
    assert (
        "and without broker.id, controller.quorum.voters and advertised.listeners. It was node 3's: keystores and "
        "names in it may belong to that host. It listens on CONTROLLER:SASL_SSL. "
    ) in said["text"]


SEVERAL: Final = (
    OWN.replace("listeners=CONTROLLER://:19703", "listeners=CONTROLLER://:19703,INTERNAL://:19713")
    .replace("names=CONTROLLER", "names=CONTROLLER,INTERNAL")
    .replace("CONTROLLER:SASL_SSL", "CONTROLLER:SASL_SSL,INTERNAL:PLAINTEXT")
)
BROKER: Final = "node.id=11\nprocess.roles=broker\ncontroller.listener.names=INTERNAL\n"


def test_every_listener_is_in_the_voter_set_and_has_brokers_of_its_own(
    rescued: Rescued, tmp_path: Path, kraft_audit: Any
) -> None:
    own, broker = file_in(tmp_path, SEVERAL), file_in(tmp_path, BROKER, "broker.properties")
    written = rescued("--config", f"3={own}", "--config", f"11={broker}")
    with audit.open(str(tmp_path / "new")) as clusters:
        (cluster,) = clusters
        voter_set = cluster.state().voter_set
    assert voter_set is not None
    (voter,) = voter_set["voters"]
    points = [(point["name"], point["host"], point["port"]) for point in voter["endpoints"]]
    assert points == [("CONTROLLER", "127.0.0.1", 19703), ("INTERNAL", "127.0.0.1", 19713)]
    steps = [each for each in written["procedure"] if each["text"].startswith("Set this in the config of every")]
    assert [(each["text"], each["settings"]) for each in steps] == [
        (
            "Set this in the config of every broker whose controller.listener.names begins with CONTROLLER, in "
            "place of its controller.quorum.voters and controller.quorum.bootstrap.servers:",
            [f"controller.quorum.bootstrap.servers={PLACE}"],
        ),
        (
            "Set this in the config of every broker whose controller.listener.names begins with INTERNAL (11, by the "
            "configs here), in place of its controller.quorum.voters and controller.quorum.bootstrap.servers:",
            ["controller.quorum.bootstrap.servers=127.0.0.1:19713"],
        ),
    ]
    said = step(written, "The controller's config")["text"]
    assert "It listens on CONTROLLER:SASL_SSL and INTERNAL:PLAINTEXT. " in said


def test_each_listener_of_a_moved_controller_is_named(kraft_audit: Any, one_left: Path, tmp_path: Path) -> None:
    own = file_in(tmp_path, SEVERAL)
    words = ["rescue", one_left, "--gone", "1,2", "--from", "3", "--out", tmp_path / "new", "--config", f"3={own}"]
    ended = kraft_audit(*words, "--endpoint", "c9.example:9093")
    assert (ended.code, ended.error_lines) == (
        1,
        [
            f"kraft-audit: {one_left}: refused: Controllers listen on CONTROLLER and INTERNAL: give "
            "--endpoint CONTROLLER://HOST:PORT --endpoint INTERNAL://HOST:PORT."
        ],
    )
    both = ["--endpoint", "INTERNAL://c9.example:9094", "--endpoint", "CONTROLLER://c9.example:9093"]
    ended = kraft_audit(*words, *both)
    assert ended.out.splitlines()[1].endswith(", CONTROLLER://c9.example:9093, INTERNAL://c9.example:9094")


def test_a_new_controller_is_added_once_it_has_caught_up(rescued: Rescued) -> None:
    written = rescued()
    steps = written["procedure"][-6:]
    option = f"--bootstrap-controller {PLACE}"
    assert [each["text"] for each in steps] == [
        "For each new controller, one after the other, take an empty disk and a node.id that no broker has, best a new "
        "one, else that of an old controller (1 or 2). An old id returns only this way, never with its old disk.",
        "Give it the config of node 3, authorizer and all, with its own node.id, listeners and log.dirs, and with this "
        "line:",
        "Format it on its host, where controller.properties is its config, and start it:",
        "Wait until it has caught up: ask until this table lists it as an Observer whose Lag is 0 or a few records. "
        f"Its LogEndOffset is then above {written['offset']}.",
        "Only then add it, on its host and with its config:",
        "See that CurrentVoters lists it now, and only then begin with the next one. Once all are voters, name them "
        "all in controller.quorum.bootstrap.servers of every node, for its next start.",
    ]
    assert steps[2]["commands"][0].endswith("--no-initial-controllers --config controller.properties")
    assert steps[5]["commands"] == [f"kafka-metadata-quorum {option} describe --status"]
    assert steps[3]["commands"] == [f"kafka-metadata-quorum {option} describe --replication"]
    assert steps[4]["commands"] == [
        f"kafka-metadata-quorum {option} --command-config controller.properties add-controller"
    ]


def test_every_blank_is_in_capitals() -> None:
    assert all(blank(key).isupper() and "." not in blank(key) for key in (*FIRST_BLANKS, *BLANKS))


def test_a_combined_node_s_file_becomes_that_of_a_controller_alone(kraft_audit: Any, tmp_path: Path) -> None:
    """And without a file a combined node's own config is edited where it is."""
    path = f"{SMALL_CORPUS}/static-to-dynamic-upgrade/01-kafka-3.5.2"
    own = file_in(
        tmp_path,
        "process.roles=controller, broker\nnode.id=3\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\nadvertised.listeners=PLAINTEXT://c3.example:9092\n"
        "early.start.listeners=CONTROLLER,PLAINTEXT\nlog.dirs=/a,/b\nmetadata.log.dir=/m\n",
    )
    words = ["rescue", path, "--gone", "1,2", "--from", "3", "-o", "json", "--config", f"3={own}"]
    words += ["--endpoint", "c3.example:9093"]
    alone = json.loads(kraft_audit(*words, "--node-id", "9", "--out", tmp_path / "alone").out)["config"]
    assert (alone["lines"], alone["removed"]) == (
        [
            "process.roles=controller",
            "node.id=9",
            "listeners=CONTROLLER://c3.example:9093",
            "controller.quorum.voters=9@c3.example:9093",
            f"log.dirs={tmp_path}/alone",
        ],
        ["metadata.log.dir", "advertised.listeners", "early.start.listeners"],
    )
    both = json.loads(kraft_audit(*words, "--out", tmp_path / "both").out)["config"]
    assert (both["lines"], both["removed"]) == (
        [
            "listeners=CONTROLLER://c3.example:9093,PLAINTEXT://:9092",
            "controller.quorum.voters=3@c3.example:9093",
            f"metadata.log.dir={tmp_path}/both",
        ],
        [],
    )
    by_hand = json.loads(kraft_audit(*words[:6], *words[-2:], "-o", "json", "--out", tmp_path / "by-hand").out)
    said = step(by_hand, "The controller's config")
    assert said["text"] == (
        "The controller's config is node 3's own server.properties with these lines in place of its own, and without "
        "controller.quorum.bootstrap.servers. Keep the rest: authorizer, protocols, passwords and listeners, of which "
        "CONTROLLER at c3.example:9093 is the controller's."
    )
    assert said["settings"] == [
        "controller.quorum.voters=3@c3.example:9093",
        f"metadata.log.dir={tmp_path}/by-hand",
    ]


def test_tools_log_in_at_a_controller_that_takes_nobody_else(rescued: Rescued, tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    own = f"{OWN}ssl.truststore.location=/etc/all.p12\nlistener.name.controller.ssl.truststore.location=/etc/own.p12\n"
    own += f'sasl.mechanism.controller.protocol=PLAIN\nlistener.name.controller.plain.sasl.jaas.config={login} a="b";\n'
    written = rescued("--config", f"3={file_in(tmp_path, own)}")
    assert "JAAS file" not in step(written, "The controller's config")["text"]
    client = tmp_path / "new-client.properties"
    assert client.stat().st_mode & 0o777 == 0o600
    assert client.read_text().splitlines()[2:] == [
        "security.protocol=SASL_SSL",
        f"ssl.keystore.password={SECRET}",
        "ssl.truststore.location=/etc/own.p12",
        "sasl.mechanism=PLAIN",
        f'sasl.jaas.config={login} a="b";',
    ]
    assert step(written, "Check it")["commands"] == [
        f"kafka-metadata-quorum --bootstrap-controller {PLACE} --command-config {client} describe --status"
    ]
    assert step(written, "Only then add it")["commands"] == [
        f"cat controller.properties {client} > joining.properties",
        f"kafka-metadata-quorum --bootstrap-controller {PLACE} --command-config joining.properties add-controller",
    ]


def test_what_tools_need_is_said_where_no_whole_file_is_known(rescued: Rescued, one_left: Path) -> None:
    file_in(one_left / "node-3", CAPTURED, "server.properties")
    written = rescued()
    assert "Kafka's tools need client.properties to log in there" in step(written, "Otherwise write")["text"]
    assert "--command-config client.properties" in step(written, "Check it")["commands"][0]
