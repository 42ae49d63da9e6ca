"""What a captured server.properties changes of KV017 and of `may-i` at kraft.version 0."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kraft_audit import open as open_captures
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_engine.scenarios.scenario import load

HOSTS = {1: "1@a:9093", 2: "2@b:9093", 3: "3@c:9093"}
ALL = (1, 2, 3)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`static-roll`: three voters whose quorum-states agree. `static-scale-out`: two new ones beside an old one."""
    folder = tmp_path_factory.mktemp("played")
    for name in ("static-roll", "static-scale-out"):
        load()[name].play(1, folder / name)
    return {path.parent.name: path for path in folder.glob("*/*/")}


@pytest.fixture
def rolled(played: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(played["static-roll"], tmp_path / "rolled")


def configure(capture: Path, node_id: int, *voters: int, own_id: int | None = None, roles: str = "controller") -> None:
    lines = [f"node.id={node_id if own_id is None else own_id}", f"process.roles={roles}"]
    lines += [f"controller.quorum.voters={','.join(HOSTS[each] for each in voters)}"]
    (capture / f"node-{node_id}" / "server.properties").write_text("\n".join(lines))


def asked(capture: Path, action: Action, node_id: int, *stopped: int) -> Permission:
    with open_captures(str(capture)) as (cluster,):
        return cluster.may_i(Question(action, node_id, "captures", stopped=frozenset(stopped)))


def raised(capture: Path, rule: str = "KV017") -> list[str]:
    """The evidence of a rule."""
    with open_captures(str(capture)) as (cluster,):
        findings = cluster.findings().to_pylist()
    found = (each for each in findings if each["rule"] == rule and each["status"] == "raised")
    return [fact["text"] for each in found for fact in each["evidence"]]


@pytest.mark.slow
def test_configurations_that_agree_change_nothing(rolled: Path) -> None:
    before = asked(rolled, Action.RESTART, 2)
    for node in ALL:
        configure(rolled, node, *ALL)
    assert (before.verdict, raised(rolled)) == (Verdict.YES, [])
    assert asked(rolled, Action.RESTART, 2) == before


@pytest.mark.slow
@pytest.mark.parametrize("voters", [(1, 2), (1,)])
def test_one_that_will_read_another_set_is_named_with_both_and_nobody_is_restarted(
    rolled: Path, voters: tuple[int, ...]
) -> None:
    configure(rolled, 1, *voters)
    facts = raised(rolled)
    assert sum("currentVoters [1, 2, 3]" in fact for fact in facts) == 4
    assert (
        [fact for fact in facts if "controller.quorum.voters" in fact]
        == [fact for fact in facts if f"controller.quorum.voters {list(voters)}" in fact]
        != []
    )
    answer = asked(rolled, Action.RESTART, 2)
    assert answer.verdict is Verdict.NO
    assert "controller.quorum.voters reads" in answer.reason


@pytest.mark.slow
@pytest.mark.parametrize("names_none", [False, True])
def test_a_broker_elects_nobody_whatever_its_configuration_names(rolled: Path, names_none: bool) -> None:
    """With an empty currentVoters, too: a broker that finds its controllers by bootstrap servers names none."""
    if names_none:
        quorum_state = rolled / "node-11" / "__cluster_metadata-0" / "quorum-state"
        said = {**json.loads(quorum_state.read_text()), "currentVoters": []}
        quorum_state.write_text(json.dumps(said, separators=(",", ":")))
    before = asked(rolled, Action.RESTART, 2)
    configure(rolled, 11, 1, 2, roles="broker")
    assert (raised(rolled), before.verdict) == ([], Verdict.YES)
    assert asked(rolled, Action.RESTART, 2) == before
    configure(rolled, 11, 1, 2, roles="broker,controller")
    assert [fact for fact in raised(rolled) if "controller.quorum.voters" in fact] != []
    assert asked(rolled, Action.RESTART, 2).verdict is not Verdict.YES


@pytest.mark.slow
def test_a_configuration_of_another_node_says_nothing_of_these_voters(rolled: Path) -> None:
    """Kafka does not start a node whose configuration and disk have different ids."""
    configure(rolled, 1, 1, own_id=2)
    assert raised(rolled) == []
    assert raised(rolled, "KV018") == ["its configuration says node.id=2, its meta.properties 1"]
    assert asked(rolled, Action.START, 1).verdict is Verdict.NO
    assert asked(rolled, Action.RESTART, 2).verdict is Verdict.YES


@pytest.mark.slow
def test_a_disk_under_another_id_is_neither_started_nor_wiped(tmp_path: Path) -> None:
    load()["node-id-changed"].play(1, tmp_path)
    (capture,) = tmp_path.glob("*/")
    (fact,) = raised(capture, "KV018")
    assert "is that of node" in fact
    assert {asked(capture, action, 4).verdict for action in (Action.START, Action.WIPE)} == {Verdict.NO}
    assert asked(capture, Action.RESTART, 1).verdict is Verdict.YES


@pytest.mark.slow
def test_two_disks_with_one_directory_id_are_a_copy_of_the_registered_one(rolled: Path) -> None:
    meta = rolled / "node-2" / "meta.properties"
    other = rolled / "node-11" / "meta.properties"
    ids = [line for line in other.read_text().splitlines() if line.startswith("directory.id=")]
    kept = [line for line in meta.read_text().splitlines() if not line.startswith("directory.id=")]
    meta.write_text("\n".join([*kept, *ids]))
    assert len(raised(rolled, "KV018")) == 2, "whose it is in the log, and that both have it"
    assert asked(rolled, Action.START, 2).verdict is Verdict.NO
    assert asked(rolled, Action.START, 11).verdict is not Verdict.NO


@pytest.mark.slow
def test_a_configuration_says_what_a_lost_quorum_state_does_not(rolled: Path) -> None:
    (rolled / "node-3" / "__cluster_metadata-0" / "quorum-state").unlink()
    assert asked(rolled, Action.START, 3, 2).verdict is Verdict.UNDECIDED
    configure(rolled, 3, *ALL)
    assert asked(rolled, Action.START, 3, 2).verdict is Verdict.YES
    configure(rolled, 3, 3)
    assert asked(rolled, Action.START, 3, 2).verdict is Verdict.NO


@pytest.mark.slow
def test_two_formatted_nodes_that_name_each_other_are_not_started(played: dict[str, Path], tmp_path: Path) -> None:
    """Seen on 4.1.2: they elect one of themselves, and the old voter truncates its log."""
    capture = shutil.copytree(played["static-scale-out"], tmp_path / "scaled")
    for node in (2, 3):
        for file in (capture / f"node-{node}" / "__cluster_metadata-0").iterdir():
            file.unlink()
        configure(capture, node, *ALL)
    answer = asked(capture, Action.START, 2)
    assert answer.verdict is Verdict.NO
    assert "they elect 2 or 3 with an empty log" in answer.reason
    assert any("controller.quorum.voters [1, 2, 3]" in fact for fact in raised(capture))
