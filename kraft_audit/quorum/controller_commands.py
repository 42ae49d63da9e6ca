"""Kafka's own commands to take a controller out and bring it back, as advice prints them: ready to be pasted.

`server` is the option that says where to ask, such as `--bootstrap-controller HOST:PORT`.
"""

from __future__ import annotations

import shlex
from typing import Final

from kraft_audit.capture.plan import cluster_id_of

CONFIG: Final = "controller.properties"
"""Stands for the path of the controller's properties."""
UNKNOWN_ID: Final = "CLUSTER_ID"
"""Stands for the id where no meta.properties was read."""


def remove_controller(server: str, node_id: int, directory_id: str | None) -> str:
    """KIP-853: needs kraft.version 1, where every voter has a directory id, and a leader."""
    return (
        f"kafka-metadata-quorum {server} remove-controller --controller-id {node_id} "
        f"--controller-directory-id {directory_id}"
    )


def add_controller(server: str) -> str:
    """KIP-853: run on the controller that comes back, once it has fetched the log."""
    return f"kafka-metadata-quorum {server} --command-config {CONFIG} add-controller"


def format_disk(cluster_id: str, *, joins: bool, beside_data: bool = False) -> str:
    """`cluster_id` may be the id of one of its histories. `joins`: a dynamic quorum is there to be joined.

    `beside_data`: the node is a broker too, and has data dirs that stay as they are.
    """
    pasted = shlex.quote(cluster_id_of(cluster_id) or UNKNOWN_ID)
    choice = " --no-initial-controllers" if joins else ""
    ignored = " --ignore-formatted" if beside_data else ""
    return f"kafka-storage format --cluster-id {pasted}{choice}{ignored} --config {CONFIG}"


def unregister_broker(server: str, node_id: int) -> str:
    """Removes the registration of a broker that is gone; the broker must be stopped."""
    return f"kafka-cluster unregister {server} --id {node_id}"


def unregister_controller(server: str, node_id: int) -> str:
    """KIP-1312: needs metadata.version 33. It must never name a voter (KAFKA-20865)."""
    return f"kafka-cluster unregister-controller {server} --id {node_id}"
