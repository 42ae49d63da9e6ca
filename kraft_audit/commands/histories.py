"""Whole histories of the clusters below PATH, for the commands that judge them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kraft_audit.cluster_name import shown_cluster_id
from kraft_audit.commands.ending import complain
from kraft_audit.commands.reading import opened, redaction_key, redactor
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.commands.timeline_order import ProvenOrder
    from kraft_audit.output import Output
    from kraft_audit.rules.history import ClusterHistory


def histories(
    path: str,
    *,
    dialect: Dialect,
    capture: str | None = None,
    defaults: list[str] | None = None,
    shows_values: bool = False,
) -> Iterator[ClusterHistory]:
    """One history for each cluster below `path`, in the order of their ids. Raises InputError."""
    from kraft_audit.rules.collect import read_history

    key = redaction_key(shows_values=shows_values)
    with opened(path, dialect=dialect, capture=capture, defaults=defaults) as found:
        for plan in found.plans:
            history = read_history(plan, open_storage=found.open_storage, redactor=redactor(key))
            say_unread(path, history)
            yield history


def undecided_row(keys: Iterable[str], cluster_id: str, reason: str) -> dict[str, Any]:
    """What stands for the rows of a cluster of which nothing was read: none at all would say that there are none."""
    return {**dict.fromkeys(keys), "cluster_id": cluster_id, "undecided": reason}


def ordered_histories(
    path: str,
    *,
    dialect: Dialect,
    capture: str | None = None,
    defaults: list[str] | None = None,
    shows_values: bool = False,
) -> Iterator[tuple[ClusterHistory, ProvenOrder]]:
    """Each history of `histories` with the order that its captures prove: what a timeline needs."""
    from kraft_audit.commands.timeline_order import proven_order
    from kraft_audit.replay.proven_plan import in_proven_order
    from kraft_audit.replay.survey import survey
    from kraft_audit.rules.collect import read_history

    key = redaction_key(shows_values=shows_values)
    with opened(path, dialect=dialect, capture=capture, defaults=defaults) as found:
        for planned in found.plans:
            secrets = redactor(key)
            proven = in_proven_order(planned, open_storage=found.open_storage, redactor=secrets)
            shape = proven.shape or survey(proven.plan, open_storage=found.open_storage, redactor=secrets)
            history = read_history(proven.plan, open_storage=found.open_storage, redactor=secrets, shape=shape)
            say_unread(path, history)
            yield history, proven_order(shape, proven.plan)


def say_missing(out: Output, holes: Sequence[tuple[int, int]]) -> None:
    """A line that says which records are missing in what is told, if any are."""
    if holes:
        from kraft_audit.replay.state import missing_text

        out.text(missing_text(holes))


def say_unread(path: str, history: ClusterHistory) -> None:
    """A line on stderr where nothing of a cluster's log could be read: that nothing is found there says nothing."""
    if not history.is_read:
        from kraft_audit.rules.registry import NOTHING_READ

        complain(f"{path}: cluster {shown_cluster_id(history.cluster_id)}: {NOTHING_READ}")
