"""The steps from one controller back to a majority, with the config of the rescued one for every new one."""

from __future__ import annotations

import shlex
from typing import Final

from kraft_audit.recovery.lost_quorum.config_steps import brokers_of, forget_voters
from kraft_audit.recovery.lost_quorum.procedure_step import (
    ProcedureStep,
    Steps,
    bootstrap_option,
    controller_option,
    is_combined,
    quorum_line,
)
from kraft_audit.recovery.lost_quorum.rescue import Rescue
from kraft_audit.recovery.lost_quorum.rescued_dir import new_directory_id
from kraft_audit.rules.columns.kafka_commands import CONFIG, add_controller, format_disk
from kraft_audit.text.readable import any_of, listed

JOINED_CONFIG: Final = "joining.properties"
"""Stands for a file with a new controller's properties and the login of the tools."""


def static_majority(rescue: Rescue) -> Steps:
    """Voters of a static quorum begin with the same log, or the new ones could elect themselves without it."""
    node = rescue.node
    others = [each for each, _ in rescue.others]
    combined = is_combined(rescue)
    new_dir = "the metadata.log.dir of node N, beside its data dirs" if combined else "that of node N"
    yield ProcedureStep(
        f"Stop node {node.node_id} and all brokers, and give {listed(others)} a copy of its log dir, never an empty "
        "one. Two empty disks elect themselves and make it truncate everything. "
        f"BROKER_DIR is each broker's metadata log dir, RESCUED_DIR the rescued one, NEW_DIR_N {new_dir}.",
        commands=(
            *forget_voters(rescue),
            'rm -f "$RESCUED_DIR"/__cluster_metadata-0/quorum-state "$RESCUED_DIR"/.lock',
            *(command for each, _ in rescue.others for command in _copied(node.cluster_id, each)),
        ),
    )
    yield _controllers_config(rescue)
    for endpoint in node.endpoints[1:]:
        line = quorum_line(rescue, endpoint, dict(rescue.others))
        yield ProcedureStep(f"Set this in {brokers_of(rescue, endpoint)}, in place of that line:", settings=(line,))
    yield ProcedureStep("Start all controllers, then the brokers.")


def _controllers_config(rescue: Rescue) -> ProcedureStep:
    node, others = rescue.node, [each for each, _ in rescue.others]
    line = quorum_line(rescue, node.endpoints[0], dict(rescue.others))
    if is_combined(rescue):
        return ProcedureStep(
            f"Set this in every controller's and every broker's config, with metadata.log.dir in those of "
            f"{listed(others)}. Keep the rest of their own files. Move out of their data dirs the metadata log that "
            "they made as brokers. Format what is not formatted:",
            settings=("process.roles=broker,controller", line),
            commands=(format_disk(node.cluster_id, joins=False, beside_data=True),),
        )
    return ProcedureStep(
        f"Set this in every controller's and every broker's config. For {listed(others)} take the config of node "
        f"{node.node_id}, authorizer and all, with their own node.id, listeners and log.dirs:",
        settings=(line,),
    )


def _copied(cluster_id: str, node_id: int) -> tuple[str, str]:
    new = f'"$NEW_DIR_{node_id}"'
    meta = f"version=1\\ncluster.id={cluster_id}\\nnode.id={node_id}\\ndirectory.id={new_directory_id()}\\n"
    return f'cp -a "$RESCUED_DIR" {new}', f"printf {shlex.quote(meta)} > {new}/meta.properties"


def dynamic_majority(rescue: Rescue) -> Steps:
    """Each new controller is formatted, catches up as an observer, and only then becomes a voter (KIP-853)."""
    node, combined = rescue.node, is_combined(rescue)
    old = sorted({*rescue.plan.voters, *rescue.ghosts} - {node.node_id})
    disk, dirs, whose = "an empty disk", "log.dirs", "broker"
    if combined:
        disk, dirs = "an empty disk, or a new metadata.log.dir beside data that it has,", "log dirs"
        whose = "other node"
    old_ids = f", else that of an old controller ({any_of(old)})" if old else ""
    yield ProcedureStep(
        f"For each new controller, one after the other, take {disk} and a node.id that no {whose} has, best a new one"
        f"{old_ids}. An old id returns only this way, never with its old disk."
    )
    yield ProcedureStep(
        f"Give it the config of node {node.node_id}, authorizer and all, with its own node.id, listeners and {dirs}, "
        "and with this line:",
        settings=(quorum_line(rescue, node.endpoints[0], {}),),
    )
    yield ProcedureStep(
        f"Format it on its host, where {CONFIG} is its config, and start it:",
        commands=(format_disk(node.cluster_id, joins=True, beside_data=combined),),
    )
    yield ProcedureStep(
        "Wait until it has caught up: ask until this table lists it as an Observer whose Lag is 0 or a few records. "
        f"Its LogEndOffset is then above {rescue.offset}.",
        commands=(f"kafka-metadata-quorum {controller_option(rescue)} describe --replication",),
    )
    yield _addition(rescue)
    yield ProcedureStep(
        "See that CurrentVoters lists it now, and only then begin with the next one. Once all are voters, name them "
        "all in controller.quorum.bootstrap.servers of every node, for its next start.",
        commands=(f"kafka-metadata-quorum {controller_option(rescue)} describe --status",),
    )


def _addition(rescue: Rescue) -> ProcedureStep:
    """The tool reads the new voter from the file by which it logs in (MetadataQuorumCommand, Kafka 4.3)."""
    client = rescue.config.client
    if client is None:
        return ProcedureStep(
            "Only then add it, on its host and with its config:", commands=(add_controller(bootstrap_option(rescue)),)
        )
    return ProcedureStep(
        "Only then add it, on its host, with its config and the login of the tools in one file:",
        commands=(
            f"cat {CONFIG} {shlex.quote(client)} > {JOINED_CONFIG}",
            add_controller(bootstrap_option(rescue), JOINED_CONFIG),
        ),
    )
