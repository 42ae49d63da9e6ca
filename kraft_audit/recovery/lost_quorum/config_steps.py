"""The steps that change configs: brokers find the rescued controller, and it starts as the old one did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraft_audit.quorum.static_voters import QUORUM_VOTERS
from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.lost_quorum.controller_config import BOOTSTRAP_SERVERS, ControllerConfig
from kraft_audit.recovery.lost_quorum.procedure_step import (
    OWN_NOTE,
    ProcedureStep,
    Steps,
    combined_nodes,
    is_combined,
    quorum_line,
)
from kraft_audit.recovery.lost_quorum.rescue import Rescue
from kraft_audit.rules.columns.kafka_commands import format_disk
from kraft_audit.text.readable import any_of, listed, nouns

FORGET_VOTERS: Final = 'rm -f "$BROKER_DIR"/__cluster_metadata-0/quorum-state'
LOGIN_UNKNOWN: Final = (
    " If the controllers took SASL or SSL alone, add --command-config FILE to every command below that asks one: FILE "
    "holds security.protocol, and what that needs."
)
OLD_QUORUM: Final = f"its {QUORUM_VOTERS} and {BOOTSTRAP_SERVERS}"
HAND_WRITTEN: Final = "controller.properties"
FAMILIES: Final = ("ssl.", "sasl.", "listener.name.", "delegation.token.", "config.providers")
"""What keys begin with that a controller has to have as the old one had them."""


def brokers_config(rescue: Rescue) -> Steps:
    """What brokers' configs have to say, once for each listener by which brokers may look for controllers."""
    for endpoint in rescue.node.endpoints:
        yield _brokers_config(rescue, endpoint)


def _brokers_config(rescue: Rescue, endpoint: Endpoint) -> ProcedureStep:
    whose, line = brokers_of(rescue, endpoint), quorum_line(rescue, endpoint, {})
    combined = combined_nodes(rescue)
    if combined and not is_combined(rescue):
        return ProcedureStep(
            f"Set this in {whose}, in place of {OLD_QUORUM}. {nouns('Node', combined)} go on as brokers only, without "
            "the controllers' listeners in listeners:",
            settings=("process.roles=broker", line),
        )
    text = f"Set this in {whose}, in place of {OLD_QUORUM}:"
    if not rescue.node.is_static or not forget_voters(rescue):
        return ProcedureStep(text, settings=(line,))
    # A node below 3.9 does not start where its quorum-state names other voters than its config (QuorumState, 3.8).
    return ProcedureStep(
        f"On every broker remove what names the old voters; BROKER_DIR is its metadata log dir. {text}",
        settings=(line,),
        commands=forget_voters(rescue),
    )


def brokers_of(rescue: Rescue, endpoint: Endpoint) -> str:
    """Whose config is meant: of brokers that look for controllers at this endpoint's listener."""
    if len(rescue.node.endpoints) == 1:
        return "every broker's config"
    using = [broker for broker, listener in rescue.broker_listeners.items() if listener == endpoint.name]
    known = f" ({listed(using)}, by the configs here)" if using else ""
    return f"the config of every broker whose controller.listener.names begins with {endpoint.name}{known}"


def forget_voters(rescue: Rescue) -> tuple[str, ...]:
    """What brokers need that are no controllers: a combined node's metadata log was moved away."""
    return (FORGET_VOTERS,) if len(combined_nodes(rescue)) < len(rescue.brokers) else ()


def first_start(rescue: Rescue) -> Steps:
    """The rescued controller starts, with the old one's own file, or with blanks that keep it from starting open."""
    node, config = rescue.node, rescue.config
    protocols = f" It listens on {listed(config.protocols)}." if config.protocols else ""
    if config.client is not None:
        protocols += f" {_login_of_tools(config)}"
    name = HAND_WRITTEN
    if config.path is not None:
        text, name = _with_own_file(config, node.node_id), config.path
    elif is_combined(rescue):
        text, name = _own_file_by_hand(rescue), f"node {node.node_id}'s server.properties"
    else:
        yield _file_instead(rescue)
        text = _by_hand(rescue)
    yield ProcedureStep(f"{text}{protocols}", settings=config.lines)
    yield ProcedureStep(
        "Start only one rescued dir: one that was never started may be deleted and built again. Two that start are two "
        "clusters of one id."
    )
    beside, key = ",", "log.dirs"
    if is_combined(rescue):
        beside, key = f" beside the data dirs of node {node.node_id}, in none of them,", "metadata.log.dir"
    yield ProcedureStep(
        f"Copy what is in {rescue.out} to a new empty folder on host {node.endpoints[0].host}{beside} chown it to "
        f"Kafka's user, and set {key} in {name} to that folder."
    )
    is_there = config.path is None and is_combined(rescue)
    start = "Format nothing, and" if is_there else f"Take {name} to that host, format nothing, and"
    yield ProcedureStep(f"{start} start the controller with {name if is_there else 'it'}.")


def _file_instead(rescue: Rescue) -> ProcedureStep:
    """The best way: no line of the old controller's config can be forgotten."""
    voters = rescue.plan.voters
    owner = rescue.node.node_id if rescue.node.node_id in voters or not voters else voters[0]
    return ProcedureStep(
        f"If the server.properties of controller {owner} is left, repeat rescue with --config {owner}=FILE and another "
        "--out, and follow what that prints."
    )


def _login_of_tools(config: ControllerConfig) -> str:
    if config.path is not None:
        missing = ""
        if config.client_lacks_login:
            missing = " Add sasl.jaas.config to it: the login stands in a JAAS file of the old host."
        return (
            f"Kafka's tools log in as the controller does, with {config.client}: passwords are in it, and on another "
            f"host they need that file and its keystores too.{missing}"
        )
    return (
        f"Kafka's tools need {config.client} to log in there: write security.protocol, sasl.mechanism, "
        "sasl.jaas.config and the ssl.truststore lines into it, as far as the protocol wants them."
    )


def _with_own_file(config: ControllerConfig, node_id: int) -> str:
    removed = f", and without {listed(config.removed)}" if config.removed else ""
    other = ""
    if config.source_id != node_id:
        other = f" It was node {config.source_id}'s: keystores and names in it may belong to that host."
    return (
        f"The controller's config is {config.path}: {config.source}, authorizer, protocols and passwords included, "
        f"with these lines in place of its own{removed}.{other}"
    )


def _own_file_by_hand(rescue: Rescue) -> str:
    """A combined node keeps its data, so its config is where it was."""
    node = rescue.node
    without = BOOTSTRAP_SERVERS if node.is_static else QUORUM_VOTERS
    places = listed([f"{endpoint.name} at {endpoint.place}" for endpoint in node.endpoints])
    return (
        f"The controller's config is node {node.node_id}'s own server.properties with these lines in place of its own, "
        f"and without {without}. Keep the rest: authorizer, protocols, passwords and listeners, of which {places} is "
        "the controller's."
    )


def _by_hand(rescue: Rescue) -> str:
    source = rescue.config.source
    known = "No config of an old controller was read"
    login = "" if rescue.config.protocols else LOGIN_UNKNOWN
    if source is not None:
        known = f"Only some settings of the old controller are in {source}"
    return (
        f"Otherwise write {HAND_WRITTEN} by hand: its lines stand in {OWN_NOTE}. {known}, so these lines "
        "are not a whole config. Fill in every name in capitals as the old controllers had it, the authorizer and the "
        "protocols first. Remove such a line only if they had none: Kafka does not start while one is left. Add every "
        "line of "
        f"theirs that begins with {any_of(FAMILIES)}. Without the authorizer any user may create and delete topics. "
        "Without the policies every topic and config is accepted, and without its secret key no delegation token is "
        f"valid.{login}"
    )


def other_combined(rescue: Rescue, nodes: Sequence[int]) -> ProcedureStep:
    """How nodes whose data is left come back: as brokers at once, as controllers when they hold the rescued state."""
    if rescue.node.is_static:
        return ProcedureStep(
            f"{nouns('Node', nodes)} {'is a broker' if len(nodes) == 1 else 'are brokers'} only until there is a "
            "majority again, without the controllers' listeners in listeners:",
            settings=("process.roles=broker",),
        )
    return ProcedureStep(
        f"{nouns('Node', nodes)} {'starts' if len(nodes) == 1 else 'start'} as before, broker and controller, but with "
        "metadata.log.dir set to a new folder beside the data dirs, which this formats. Not a voter yet:",
        commands=(format_disk(rescue.node.cluster_id, joins=True, beside_data=True),),
    )
