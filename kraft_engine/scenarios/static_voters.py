"""Static quorums whose configurations change: at kraft.version 0 each node goes by its own controller.quorum.voters."""

from __future__ import annotations

from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.scenarios.scenario import scenario


@scenario(
    "static-scale-out",
    "A static quorum of one is configured as three. The two new controllers start first and elect one of themselves.",
    raises=("KQ002", "KQ003", "KV001", "KV007", "KV011", "KV017"),
)
def static_scale_out(stage: Stage) -> None:
    _write_alone(stage, 1)
    stage.stop(1)
    stage.configure_voters((2, 3), (1, 2, 3))
    stage.invariants.damage("another controller.quorum.voters on each node")
    stage.start(2)
    stage.start(3)
    stage.run_ms(20_000)
    stage.capture("two-quorums")


@scenario(
    "static-voters-dropped",
    "controller.quorum.voters was taken out of the leader's configuration before kraft.version was raised.",
    raises=("KV011", "KV017"),
)
def static_voters_dropped(stage: Stage) -> None:
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    first = stage.leader().id
    stage.stop(first)
    stage.until(lambda: stage.leader().id != first, "another leader")
    stage.invariants.damage("no controller.quorum.voters", node=first)
    stage.configure_voters((first,), ())
    stage.start(first)
    stage.run_ms(20_000)
    stage.capture("rolled")


@scenario(
    "static-roll",
    "Every controller of a static quorum is restarted, one after the other, beside a broker.",
    near_miss_of=("KV017",),
    raises=("KV011",),
)
def static_roll(stage: Stage) -> None:
    stage.controllers(1, 2, 3, static=True)
    stage.brokers(11)
    stage.settle()
    for node_id in (1, 2, 3):
        stage.stop(node_id)
        stage.leader()
        stage.start(node_id)
        stage.settle()
    stage.capture("rolled")


@scenario(
    "static-scale-in",
    "A static quorum of three is configured as its first node alone, which elects itself.",
    raises=("KV001", "KV007", "KV011", "KV017"),
)
def static_scale_in(stage: Stage) -> None:
    _write_alone(stage, 1, 2, 3)
    stage.capture("three")
    for node_id in (2, 3, 1):
        stage.stop(node_id)
    stage.configure_voters((1,), (1,))
    stage.start(1)
    stage.settle()
    stage.capture("one")


@scenario(
    "static-growth",
    "A static quorum of one grows to two and then to three: every majority meets the ones before.",
    near_miss_of=("KV001", "KQ002", "KQ003", "KQ006", "KV017"),
    raises=("KV011",),
)
def static_growth(stage: Stage) -> None:
    _write_alone(stage, 1)
    stage.capture("one")
    for count in (2, 3):
        voters = tuple(range(1, count + 1))
        for node_id in voters[:-1]:
            stage.stop(node_id)
        stage.configure_voters(voters, voters)
        for node_id in voters:
            stage.start(node_id)
        stage.settle()
        stage.controller().write([("NoOpRecord", 0, {})])
        stage.settle()
        stage.capture(f"of-{count}")


@scenario(
    "static-outsider-elected",
    "A fourth controller is configured as a voter, which the other three do not know. They elect it (3.8 and later).",
    raises=("KB006", "KV007", "KV011", "KV017"),
    release="3.8.1",
    metadata_version=20,
)
def static_outsider_elected(stage: Stage) -> None:
    _outsider_stands(stage)
    stage.until(lambda: stage.leader().id == 4, "the election of controller 4")
    stage.run_ms(5_000)
    stage.capture("elected")


@scenario(
    "static-outsider-refused",
    "A fourth controller is configured as a voter, which the other three do not know. They refuse it (up to 3.7).",
    raises=("KB006", "KV011", "KV017"),
    release="3.7.2",
    metadata_version=19,
)
def static_outsider_refused(stage: Stage) -> None:
    _outsider_stands(stage)
    stage.run_ms(20_000)
    stage.capture("refused")


def _outsider_stands(stage: Stage) -> None:
    """Controller 4 follows a quorum of three as an observer, is cut off for a while, and asks for votes after that."""
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    stage.invariants.damage("another controller.quorum.voters", node=4)
    stage.configure_voters((4,), (1, 2, 3, 4))
    stage.start(4)
    stage.until(lambda: stage.caught_up(4), "controller 4 catching up")
    epoch = stage.leader().epoch
    stage.isolate(4)
    stage.until(lambda: stage.node(4).epoch > epoch, "controller 4 standing")
    stage.heal()


def _write_alone(stage: Stage, *voters: int) -> None:
    """A static quorum of these voters, with a few records that all of them hold."""
    stage.controllers(*voters, static=True)
    for _ in range(5):
        stage.controller().write([("NoOpRecord", 0, {})])
        stage.run_ms(50)
    stage.settle()
