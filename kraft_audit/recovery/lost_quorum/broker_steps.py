"""What the procedure says of brokers: which stop, what their disks keep, and in which order they start."""

from __future__ import annotations

import shlex
from typing import Final

from kraft_audit.recovery.lost_quorum.procedure_step import (
    ProcedureStep,
    Steps,
    bootstrap_option,
    brokers_left,
    combined_nodes,
    loses_nothing,
    shortened,
)
from kraft_audit.recovery.lost_quorum.rescue import Rescue
from kraft_audit.recovery.lost_quorum.rescue_plan import OLD_DISKS
from kraft_audit.recovery.start_order import StartOrder, topics_of
from kraft_audit.rules.columns.kafka_commands import no_unclean_election
from kraft_audit.text.readable import any_of, listed, nouns, time_text

BROKER_STOP_S: Final = 90
"""SIGTERM does not end a broker without a quorum within this time (Kafka 4.3)."""


NEWER_LOG: Final = "Where a metadata log changed, a .log file in its __cluster_metadata-0 is newer than the copy."


def may_run_on(rescue: Rescue) -> bool:
    """Whether brokers need not stop: the rescued state has all that they know, where they look for it."""
    return loses_nothing(rescue) and rescue.keeps_endpoint and not combined_nodes(rescue)


def before_the_start(rescue: Rescue) -> Steps:
    """Whether brokers stop, and whether what was read is all that there is."""
    brokers = [f"{broker} ({place})" for broker, place in rescue.brokers]
    last = f"The last record of {rescue.source.copy.name} is of {time_text(rescue.source.copy.last_record_ms)} UTC."
    older = "If the copies are from before the majority was lost,"
    if rescue.plan.is_end_proven and rescue.plan.disks_left:
        yield ProcedureStep(
            f"If {_changed_disks(rescue)} after it was copied, copy it again and repeat rescue with another --out. "
            f"{NEWER_LOG}"
        )
    if may_run_on(rescue):
        yield ProcedureStep(f"{older} stop all brokers, copy again, and start over at `rescue --plan`. {last}")
        yield ProcedureStep(
            f"Leave the brokers that run as they are. Nothing is lost, and id and endpoint stay. Brokers: "
            f"{listed(brokers)}."
        )
        return
    yield ProcedureStep(
        f"Stop all brokers, {listed(brokers)}: send SIGTERM, kill -9 what still runs after {BROKER_STOP_S} s, and back "
        "up their data dirs. Without a quorum a broker does not stop by itself. A broker that runs while the rescued "
        "state loads deletes the logs of lost topics."
    )
    if rescue.plan.is_end_proven:
        yield ProcedureStep(f"{older} copy again now, and start over at `rescue --plan`. {last}")
    else:
        yield _add_brokers(rescue)


def _changed_disks(rescue: Rescue) -> str:
    return f"the metadata log of node {any_of(rescue.plan.disks_left)} changed"


def _add_brokers(rescue: Rescue) -> ProcedureStep:
    """Brokers hold copies of the metadata log, which may be newer than every controller's that is left."""
    copy, brokers = rescue.source.copy, rescue.plan.uncaptured_brokers
    whose = f"the node dirs of {nouns('broker', brokers)}" if brokers else "the brokers' node dirs"
    folder = f" {OLD_DISKS} is a folder with all of them." if OLD_DISKS in rescue.plan.asked_again else ""
    again = f" copy a disk again if {_changed_disks(rescue)}," if rescue.plan.disks_left else ""
    return ProcedureStep(
        f"The brokers are stopped: add {whose} to what was read,{again} and ask again.{folder} A broker's copy of the "
        f"metadata log may go on after that of {copy.name}, whose last record is of {time_text(copy.last_record_ms)} "
        f"UTC. Build the dir again if one does. {NEWER_LOG}",
        commands=(rescue.plan.asked_again,),
    )


def broker_starts(rescue: Rescue, order: StartOrder) -> Steps:
    """Brokers start, in an order where partitions without a leader wait for some of them."""
    left = brokers_left(rescue)
    last = {broker: names for broker, names in rescue.dropped.items() if broker in left}
    if unclean := order.contested or order.at_risk:
        topics = topics_of(unclean)
        why = "no order of starts is right for all partitions" if order.contested else "others may hold more"
        yield ProcedureStep(
            f"Before any broker starts, turn unclean election off for {shortened(topics)}. The first replica that is "
            f"back would lead, whatever its log holds, and {why}.",
            commands=tuple(no_unclean_election(bootstrap_option(rescue), topic) for topic in topics),
        )
    yield _start(rescue, order, [broker for broker in order.brokers if broker in left and broker not in last])
    if loses_nothing(rescue):  # otherwise a step of its own is about them
        yield ProcedureStep(
            "Never remove a folder whose name ends in -stray: a broker gives that name to the log of a partition that "
            "the rescued state does not know."
        )


def _start(rescue: Rescue, order: StartOrder, first: list[int]) -> ProcedureStep:
    """`first` are brokers to start in this order before the others."""
    left = brokers_left(rescue)
    last = [broker for broker in rescue.dropped if broker in left]
    others = sorted(left - {*first, *last})
    but = f" but {listed(last)}" if last else ""
    note = (
        "A broker that is down is fenced: the controller gives it nothing to lead, and partitions that are on such "
        "brokers alone have no leader. That is to be expected."
    )
    for broker, name in order.without_dir:
        note += f" Start broker {broker} only with the log dir that holds {name}: with an empty one it loses all of it."
    if first[1:] or (first and others):
        steps = ", then ".join([*map(str, first), *(["all others"] if others else [])])
        then = "; then restart one by one those that still run" if may_run_on(rescue) else ""
        return ProcedureStep(
            f"Start all brokers{but} in this order, each once the one before is unfenced: {steps}{then}. Partitions "
            "without a leader wait for them: recover-plan says of the rescued dir which for whom. Once a broker is "
            f"unfenced, the partitions that it may lead are gone from this list. {note}",
            commands=(f"kafka-topics {_server_option(rescue, first[0])} --describe --unavailable-partitions",),
        )
    if may_run_on(rescue):
        return ProcedureStep(
            f"Start all brokers{but} that are stopped, and restart one by one those that still run. A broker reads its "
            f"new config only then. {note}"
        )
    return ProcedureStep(f"Start all brokers{but}. {note}")


def _server_option(rescue: Rescue, broker: int) -> str:
    return f"--bootstrap-server {shlex.quote(dict(rescue.brokers)[broker])}"
