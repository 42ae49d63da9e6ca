"""How brokers leave and come back: what leaves the same records in the log, and what does not."""

from __future__ import annotations

from kraft_engine.runs.scenario_stage import MIN_ISR_2, Stage
from kraft_engine.runs.surroundings import Habits
from kraft_engine.scenarios.scenario import scenario

WORDLESS_MS = 20_000
"""So long the quorum goes on after a broker left: its own copy of the log ends long before."""


def three_and_three(stage: Stage) -> bytes:
    """Three controllers, and three brokers with a topic that 11 leads."""
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    topic = stage.topic("orders", [11, 12, 13], configs=MIN_ISR_2)
    stage.settle()
    return topic


def end(stage: Stage, name: str) -> None:
    stage.run_ms(WORDLESS_MS)
    stage.settle_controllers()
    stage.capture(name)


@scenario(
    "idle-stop",
    "A broker that leads nothing is stopped in order: Kafka fences it at once, and the log has no other word of it.",
    near_miss_of=("KP001", "KP005", "KP008"),
    habits=Habits(),
)
def idle_stop(stage: Stage) -> None:
    three_and_three(stage)
    stage.stop_broker(13)
    stage.happened("stop in order", 13)
    end(stage, "one-stopped")


@scenario(
    "idle-broker-killed",
    "The same broker is killed: the same fence, and its own copy of the log lacks it.",
    near_miss_of=("KP001", "KP005"),
    habits=Habits(),
)
def idle_broker_killed(stage: Stage) -> None:
    three_and_three(stage)
    stage.kill_broker(13, power_cut=False)
    stage.happened("crash", 13)
    end(stage, "one-killed")


@scenario(
    "freeze",
    "A broker's process stands still until it is fenced, and goes on as the same incarnation.",
    near_miss_of=("KB001", "KP001", "KP008"),
    habits=Habits(),
)
def freeze(stage: Stage) -> None:
    topic = three_and_three(stage)
    stage.freeze_broker(12)
    stage.happened("freeze", 12)
    stage.until_isr(topic, 11, 12, 13)
    stage.settle()
    stage.capture("frozen-once")


@scenario(
    "restart-loop",
    "A broker is killed soon after each of its starts, and something starts it again.",
    near_miss_of=("KP001", "KP005"),
    habits=Habits(),
)
def restart_loop(stage: Stage) -> None:
    three_and_three(stage)
    for _ in range(4):
        stage.kill_broker(12, power_cut=False)
        stage.start_broker(12)
    stage.happened("restart loop", 12)
    stage.settle()
    stage.capture("in-a-loop")


def roll(stage: Stage, topic: bytes, *, waits: bool) -> None:
    """Stops and starts 11 and then 12, which waits, or does not, until 11 has caught up."""
    stage.stop_broker(11)
    stage.cluster.network.split(([stage.slot(11)], [stage.slot(12), stage.slot(13)]))
    stage.start_broker(11)
    if waits:
        stage.cluster.network.heal()
        stage.until_isr(topic, 11, 12, 13)
    stage.stop_broker(12)
    stage.cluster.network.heal()
    stage.start_broker(12)
    stage.until_isr(topic, 11, 12, 13)
    stage.settle()


@scenario(
    "roll-too-fast",
    "Broker 12 is stopped as soon as broker 11 is back, while every partition still lacks 11.",
    raises=("KP005",),
    near_miss_of=("KP002",),
    habits=Habits(),
)
def roll_too_fast(stage: Stage) -> None:
    topic = three_and_three(stage)
    roll(stage, topic, waits=False)
    stage.happened("roll too fast", 12)
    stage.capture("rolled")


@scenario(
    "roll-that-waits",
    "The same roll waits before each step until the ISR is whole.",
    near_miss_of=("KP001", "KP005"),
    habits=Habits(),
)
def roll_that_waits(stage: Stage) -> None:
    topic = three_and_three(stage)
    roll(stage, topic, waits=True)
    stage.happened("stop in order", 11)
    stage.happened("stop in order", 12)
    stage.capture("rolled")


def combined(stage: Stage, *ids: int) -> None:
    """Nodes that are controllers and brokers, at kraft.version 0, with a topic."""
    stage.controllers(*ids, static=True)
    stage.brokers(*ids)
    stage.topic("orders", list(ids), configs=MIN_ISR_2)
    stage.settle()


@scenario(
    "role-change",
    "A node with both roles is stopped in order and started as a controller alone; nobody unregisters its broker.",
    raises=("KP021", "KV011"),
    near_miss_of=("KP001", "KQ023"),
    habits=Habits(),
)
def role_change(stage: Stage) -> None:
    combined(stage, 1, 2, 3)
    stage.brokers(11, 12)
    stage.stop_broker(3)
    stage.happened("role change", 3)
    del stage.machine.brokers[stage.slot(3)]
    stage.start(3)
    end(stage, "a-controller-only")


@scenario(
    "stopped-in-order",
    "All brokers are stopped in order, then the controllers.",
    raises=("KP002", "KP005"),
    near_miss_of=("KP008", "KQ023"),
    habits=Habits(),
)
def stopped_in_order(stage: Stage) -> None:
    three_and_three(stage)
    for broker_id in (13, 12, 11):
        stage.stop_broker(broker_id)
    stage.settle_controllers()
    stage.happened("rest", 11, 12, 13)
    for node_id in (1, 2, 3):
        stage.stop(node_id)
    stage.capture("at-rest")


@scenario(
    "crash-beside-rest",
    "Two brokers are stopped in order and one is killed, then the controllers stop: nothing is at rest.",
    raises=("KP002", "KP005"),
    habits=Habits(),
)
def crash_beside_rest(stage: Stage) -> None:
    three_and_three(stage)
    stage.stop_broker(13)
    stage.kill_broker(12, power_cut=False)
    stage.stop_broker(11)
    stage.settle_controllers()
    stage.happened("crash", 11, 12, 13)
    for node_id in (1, 2, 3):
        stage.stop(node_id)
    stage.capture("not-at-rest")


def stop_all_but_the_leader(stage: Stage) -> int:
    """Stops two of three combined nodes in order; returns the leader, which is left."""
    combined(stage, 1, 2, 3)
    leader = stage.leader().id
    for node_id in (1, 2, 3):
        if node_id != leader:
            stage.stop_broker(node_id)
    return leader


@scenario(
    "last-voter-runs-alone",
    "Two of three combined nodes stop in order; the leader, which does not notice, runs on and can commit nothing.",
    raises=("KP005", "KQ024", "KV011"),
    near_miss_of=("KQ023", "KQ025"),
    may_raise=("KV013", "KV014"),
    habits=Habits(),
)
def last_voter_runs_alone(stage: Stage) -> None:
    stage.settings.check_quorum_us = 120_000_000
    stage.happened("runs alone", stop_all_but_the_leader(stage))
    stage.run_ms(WORDLESS_MS)
    stage.capture("one-left")


@scenario(
    "last-voter-stops-too",
    "The third is stopped two seconds later: with no majority left, no record can say so.",
    raises=("KP005", "KV011"),
    near_miss_of=("KQ023", "KQ024", "KQ025", "KQ026"),
    habits=Habits(),
)
def last_voter_stops_too(stage: Stage) -> None:
    leader = stop_all_but_the_leader(stage)
    stage.run_ms(2_000)
    stage.stop(leader)
    stage.happened("rest", 1, 2, 3)
    stage.capture("at-rest")
