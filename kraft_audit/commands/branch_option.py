"""`--branch`: which log an answer is about, where captured logs contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from kraft_audit.commands.ending import UsageError
from kraft_codec.errors import ChoiceError

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.replay.cluster_state import BranchName

BranchOption = Annotated[
    str | None,
    typer.Option(
        "--branch",
        metavar="BRANCH",
        show_default=False,
        help="If logs contradict each other, use this branch: EPOCH@OFFSET[:NODE], as `quorum --diverge` prints it.",
    ),
]


def branch_of(text: str | None) -> BranchName | None:
    """The branch that --branch names; None without it. Raises UsageError."""
    from kraft_audit.replay.cluster_state import BranchName

    if text is None:
        return None
    try:
        return BranchName.parse(text)
    except ValueError as problem:
        raise UsageError(f"--branch: {problem}") from None


def on_branch(clusters: Iterable[Cluster], branch: BranchName | None, capture: str | None) -> Iterator[Cluster]:
    """The clusters as they are, or those that have a branch with it for their log.

    Raises ChoiceError where none has it.
    """
    if branch is None:
        yield from clusters
        return
    problem, count = None, 0
    for cluster in clusters:
        try:
            named = cluster.on_branch(branch, capture)
        except ChoiceError as reason:
            problem = reason
            continue
        count += 1
        yield named
    if not count and problem is not None:
        raise problem
