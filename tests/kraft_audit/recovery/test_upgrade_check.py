"""Who blocks the features of a release, in small histories. What Kafka says of the same: test_kafka_features.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.feature_levels import RegistrationState
from kraft_audit.recovery.upgrade_check import UpgradeCheck, blockers_of, upgrade_check
from tests.builders.feature_logs import FeatureLog
from tests.builders.histories import T0, HistoryBuilder, directory
from tests.builders.voter_stories import supports


def quorum(build: HistoryBuilder, level: int, *, supported: int) -> HistoryBuilder:
    """Three controllers and a broker, at a metadata.version, with software that goes up to another."""
    build.three_nodes().feature("metadata.version", level).feature("kraft.version", 1)
    for node_id in (1, 2, 3):
        build.controller(node_id, features=supports(supported))
    return build.broker(11, features=supports(supported))


def checked(build: HistoryBuilder, to: int) -> UpgradeCheck:
    return upgrade_check(build.history(), to)


def names(answer: UpgradeCheck) -> list[str]:
    return [blocker.name for blocker in blockers_of(answer.features)]


def test_software_that_supports_the_release_is_allowed(build: HistoryBuilder) -> None:
    answer = checked(quorum(build, 20, supported=21), 21)
    assert (answer.verdict, names(answer)) == ("allowed", [])
    assert answer.next_steps[-1].endswith("upgrade --feature metadata.version=21")


def test_a_ghost_controller_blocks_and_is_replaced_before_it_can_be_unregistered(build: HistoryBuilder) -> None:
    """KAFKA-20295: the upgrade to 33 is what the ghost blocks, and 33 is what unregistering it needs."""
    build = quorum(build, 30, supported=33).controller(9, at=7, features=supports(30))
    answer = checked(build, 33)
    (blocker,) = [each for each in blockers_of(answer.features) if each.standing is RegistrationState.GHOST]
    assert (answer.verdict, blocker.name, blocker.lowest_level, blocker.highest_level) == (
        "blocked",
        "controller 9",
        7,
        30,
    )
    assert (blocker.since_offset, blocker.since_ms) == (7, T0 + 7_000)
    steps = "\n".join(answer.next_steps)
    places = [
        steps.index(word)
        for word in ("node.id=9", "--no-initial-controllers", "metadata.version=33", "unregister-controller")
    ]
    assert places == sorted(places)


def test_where_ghosts_can_be_unregistered_that_comes_first(build: HistoryBuilder) -> None:
    answer = checked(quorum(build, 33, supported=34).controller(9, features=supports(33)), 34)
    steps = "\n".join(answer.next_steps)
    assert steps.index("unregister-controller") < steps.index("metadata.version=34")
    assert "format" not in steps


def test_a_registration_that_was_removed_or_renewed_blocks_nothing(build: HistoryBuilder) -> None:
    build = quorum(build, 30, supported=33)
    build.controller(9, at=7, features=supports(30)).controller(9, at=8, exists=False)
    build.broker(12, at=7, features=supports(30)).broker(12, at=9, features=supports(33))
    assert "controller 9" not in names(checked(build, 33))
    assert "broker 12" not in [each.name for each in checked(build, 33).features[0].blockers]


def test_since_when_is_the_first_registration_with_these_levels(build: HistoryBuilder) -> None:
    build = quorum(build, 30, supported=33)
    for at, level in ((5, 21), (6, 30), (9, 30)):
        build.broker(12, at=at, features=supports(level), fenced=at == 9)
    (blocker,) = checked(build, 33).features[0].blockers
    assert (blocker.since_offset, blocker.standing, blocker.is_ghost) == (6, RegistrationState.FENCED, True)


def test_before_controllers_register_the_log_does_not_know_them(build: HistoryBuilder) -> None:
    """metadata.version 3.6-IV2: the active controller asks the brokers, and its own software."""
    build.three_nodes().feature("metadata.version", 14).broker(11, features=supports(21))
    answer = checked(build, 21)
    assert (answer.verdict, names(answer)) == ("undecided", [])
    build.broker(12, features=supports(14))
    assert (checked(build, 21).verdict, names(checked(build, 21))) == ("blocked", ["broker 12"])
    for node_id in (1, 2, 3):
        build.broker(node_id, features=supports(21))
    build.broker(12, at=20, exists=False)
    assert checked(build, 21).verdict == "allowed"


def test_a_leader_that_has_not_registered_leaves_it_undecided(build: HistoryBuilder) -> None:
    build.three_nodes().feature("metadata.version", 20).feature("kraft.version", 1).broker(11, features=supports(21))
    for row in build.rows["captures"]:
        row["leader_id"] = 1
    for node_id in (2, 3):
        build.controller(node_id, features=supports(21))
    assert checked(build, 21).verdict == "undecided"
    assert checked(build.controller(1, features=supports(21)), 21).verdict == "allowed"


def test_a_lost_voter_leaves_the_voters_before_its_registration_is_replaced(build: HistoryBuilder) -> None:
    """A voter must never be unregistered (KAFKA-20865)."""
    build = quorum(build, 30, supported=33).controller(3, at=7, features=supports(30))
    assert not any("remove-controller" in step for step in checked(build, 33).next_steps)
    build.rows["captures"] = [row for row in build.rows["captures"] if row["node_id"] != 3]
    (removal,) = [step for step in checked(build, 33).next_steps if "remove-controller" in step]
    assert f"--controller-id 3 --controller-directory-id {directory(3)}" in removal
    assert not any("unregister" in step for step in checked(build, 33).next_steps)


def test_a_static_voter_has_to_be_registered(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3, kraft_version=0, source="static").leader_epoch(1, 1, 0).log(1, 2, 3, to=40)
    build.watermark(40, 40, end=40).feature("metadata.version", 20)
    for node_id in (1, 2, 3):
        build.capture(node_id, 40)
    for node_id in (1, 2):
        build.controller(node_id, features=supports(21))
    answer = checked(build, 21)
    assert [(each.name, each.standing) for each in answer.features[0].blockers] == [
        ("controller 3", RegistrationState.NOT_REGISTERED)
    ]


@pytest.mark.parametrize(
    ("level", "to", "verdict"), [(29, 27, "allowed"), (30, 29, "blocked"), (33, 30, "blocked"), (22, 21, "allowed")]
)
def test_a_downgrade_stops_where_a_level_changed_what_the_log_holds(
    build: HistoryBuilder, level: int, to: int, verdict: str
) -> None:
    answer = checked(quorum(build, level, supported=33), to)
    assert answer.verdict == verdict
    assert bool(answer.features[0].drops) == (verdict == "blocked")
    assert ("downgrade" in answer.next_steps[-1]) == (verdict == "allowed")


def test_a_downgrade_names_the_features_that_it_turns_off(build: HistoryBuilder) -> None:
    build = quorum(build, 29, supported=33).feature("eligible.leader.replicas.version", 1)
    build.feature("kraft.version", 1)
    found = {feature.name: feature for feature in checked(build, 25).features}
    assert found["eligible.leader.replicas.version"].new_level == 0
    assert found["eligible.leader.replicas.version"].drops
    assert found["kraft.version"].new_level == 1


def test_what_was_not_read_is_undecided(build: HistoryBuilder) -> None:
    build = quorum(build, 20, supported=21)
    build.gaps = ((5, 7),)
    assert checked(build, 21).verdict == "undecided"
    build.gaps, build.is_complete = (), False
    assert checked(build, 21).verdict == "undecided"
    build.controller(9, features=supports(20))
    assert checked(build, 21).verdict == "blocked"
    assert checked(HistoryBuilder().three_nodes(), 21).verdict == "undecided"


def test_one_disk_of_three_does_not_prove_that_nothing_blocks(build: HistoryBuilder) -> None:
    build = quorum(build, 20, supported=21)
    build.rows["captures"] = build.rows["captures"][:1]
    answer = checked(build, 21)
    assert answer.verdict == "undecided"
    assert "2 and 3" in answer.next_steps[0]


def test_a_static_quorum_raises_kraft_version_before_a_ghost_can_be_replaced(build: HistoryBuilder) -> None:
    """At kraft.version 0 an empty controller does not find the leader: tried with 4.4.0."""
    build = quorum(build, 30, supported=33).feature("kraft.version", 0, at=3)
    both = [*supports(30), {"name": "kraft.version", "min_supported_version": 0, "max_supported_version": 1}]
    steps = "\n".join(checked(build.controller(9, at=7, features=both), 33).next_steps)
    places = [steps.index(word) for word in ("kraft.version=1", "--no-initial-controllers", "metadata.version=33")]
    assert places == sorted(places)
    assert steps.count("kraft.version=1") == 1
    steps = "\n".join(checked(build.controller(9, at=8, features=supports(30)), 33).next_steps)
    assert "no empty controller" in steps
    assert "format" not in steps


@pytest.mark.parametrize(("states", "verdict"), [((0,), "allowed"), ((1, 2), "blocked"), ((1, 2, 3), "allowed")])
def test_an_unfinished_migration_from_zookeeper_blocks(tmp_path: Path, states: tuple[int, ...], verdict: str) -> None:
    made = FeatureLog(kraft_version=1, levels={"metadata.version": 20})
    for node_id in (1, 2, 3):
        made.controller(node_id, "3.9")
    for state in states:
        made.migration(state)
    made.write(tmp_path)
    with kraft_audit.open(str(tmp_path)) as clusters:
        (cluster,) = clusters
        assert cluster.upgrade_check(21).verdict == verdict


def test_without_a_leader_the_quorum_comes_before_the_features(build: HistoryBuilder) -> None:
    """kafka-features asks the leader, and times out where there is none."""
    build = quorum(build, 20, supported=21)
    for row in build.rows["captures"]:
        row.update(leader_epoch=2, leader_id=-1, voted_id=-1)
    first, *rest = checked(build, 21).next_steps
    assert first.startswith("Without a leader kafka-features is answered by nobody.")
    assert first.endswith(": kraft-audit check /captures")
    assert any("upgrade --feature metadata.version=21" in step for step in rest)
