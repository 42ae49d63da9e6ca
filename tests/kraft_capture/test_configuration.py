"""A node's configuration travels with its log: listed settings alone, and only to the node that it configures."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.capture.node_card import NodeCard
from kraft_capture import configuration
from kraft_capture.cli import main
from kraft_capture.log_dirs import Replica, identify, parse_properties
from kraft_codec.files.configuration import KEPT_SETTINGS, parse_configuration
from tests.builders.live_log import LiveLog
from tests.kraft_capture.test_incident_tar import SSH

VOTERS = "1@a.example:9093,\\\n    2@b.example:9093,3@[2001:db8::3]:9093"
SECRET = "hunter2"  # noqa: S105


def configured(log: LiveLog, node_id: int, log_dirs: str = "/elsewhere") -> Path:
    file = log.folder.parent / "server.properties"
    lines = [f"node.id={node_id}", "process.roles=controller", f"controller.quorum.voters={VOTERS}"]
    lines += [f"log.dirs={log_dirs}", "advertised.listeners=${env:LISTENERS}", "broker.session.timeout.ms=9000"]
    lines += [f"ssl.keystore.password={SECRET}", f"listener.name.x.sasl.jaas.config=a password={SECRET};"]
    file.write_text("\n".join(lines) + "\n")
    return file


def card_of(path: Path) -> NodeCard:
    with kraft_audit.open(str(path)) as clusters:
        (cluster,) = clusters
        (card,) = cluster.nodes()
    return card


def node_id_of(log: LiveLog) -> int:
    return identify(str(log.folder)).node_id


def is_brought(path: Path) -> bool:
    return card_of(path).configuration is not None


def test_the_copier_and_the_audit_keep_the_same_settings() -> None:
    assert configuration.KEPT_SETTINGS == KEPT_SETTINGS


def test_the_audit_reads_what_was_kept_as_it_reads_the_whole_file(log: LiveLog) -> None:
    whole = configured(log, 3).read_text()
    kept = configuration.kept_text(whole)
    assert SECRET not in kept
    assert parse_configuration(kept.encode(), "f") == parse_configuration(whole.encode(), "f")
    assert parse_configuration(kept.encode(), "f").left_out == ("advertised.listeners",)


def test_a_continued_line_is_one_value() -> None:
    text = "a=1,\\\n   2\n#b=\\\nc=x\\\\\nd:y"
    assert parse_properties(text) == {"a": "1,2", "c": "x\\", "d": "y"}


def test_a_store_and_an_archive_bring_it(log: LiveLog, tmp_path: Path) -> None:
    file = configured(log, node_id_of(log), str(log.folder))
    state = str(tmp_path / "state")
    assert main(["--config", str(file), "--to", str(tmp_path / "store"), "--state", state, "--once", "--durable"]) == 0
    assert main(["--config", str(file), "--tar", str(tmp_path / "one.tar")]) == 0
    for path in (tmp_path / "store", tmp_path / "one.tar"):
        card = card_of(path)
        assert card.configured_voters == (1, 2, 3)
        assert card.timeouts == ("broker.session.timeout.ms=9000",)
        assert str(card.configuration).endswith("/server.properties")
    assert SECRET.encode() not in (tmp_path / "one.tar").read_bytes()


def test_it_stays_at_home_where_that_is_wanted(log: LiveLog, tmp_path: Path) -> None:
    file = configured(log, node_id_of(log), str(log.folder))
    assert main(["--config", str(file), "--no-config-copy", "--tar", str(tmp_path / "one.tar")]) == 0
    assert not is_brought(tmp_path / "one.tar")


@pytest.mark.parametrize(
    ("other_id", "names_it", "is_its_own"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_it_goes_to_the_node_whose_id_or_log_dir_it_names(
    log: LiveLog, other_id: bool, names_it: bool, is_its_own: bool
) -> None:
    own = identify(str(log.folder))
    file = configured(log, own.node_id + other_id, str(log.folder) if names_it else "/elsewhere")
    assert (configuration.configuration_entry(str(file), own) is not None) == is_its_own


def test_a_file_that_is_away_or_too_large_is_none(tmp_path: Path) -> None:
    replica = Replica("c", 1, None, str(tmp_path))
    large = tmp_path / "server.properties"
    large.write_bytes(b"node.id=1\n" + b"#" * configuration.CONFIGURATION_BYTES_MAX)
    assert configuration.configuration_entry(str(large), replica) is None
    assert configuration.configuration_entry(str(tmp_path / "away"), replica) is None


@pytest.mark.slow
def test_a_remote_host_reads_its_own_file_where_it_has_one(log: LiveLog, tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_text(SSH)
    program.chmod(0o755)
    file = configured(log, node_id_of(log), str(log.folder))
    target = tmp_path / "hosts.tar"
    assert main(["--config", str(file), "--tar", str(target), "--ssh", str(program), "kafka-1"]) == 0
    with tarfile.open(target) as archive:
        assert [name.count("/") for name in archive.getnames() if name.endswith("/server.properties")] == [2]
    assert card_of(target).configured_voters == (1, 2, 3)
