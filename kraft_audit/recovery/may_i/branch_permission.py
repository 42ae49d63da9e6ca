"""`may-i` where logs contradict each other and one branch was named to stand for the log."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from kraft_audit.recovery.may_i.permission import Action, Permission, Question, RollQuestion, Verdict
from kraft_audit.replay.branch_choice import ChosenBranch

_Asked = TypeVar("_Asked", Question, RollQuestion)


def permission_on_branch(
    question: Question, branch: ChosenBranch, answer: Callable[[Question], Permission]
) -> Permission:
    """The answer if the branch is the log, and nodes that hold another one stay stopped; no for such a node itself."""
    path = shlex.quote(question.path)
    if question.node_id in branch.left_out:
        does = {
            Action.START: "started, it can bring that log back, or cut it off where the branch goes on",
            Action.RESTART: "started again, it can bring that log back, or cut it off where the branch goes on",
        }.get(question.action, "nothing else may hold that log")
        reason = f"Node {question.node_id} holds another log than branch {branch.name}: {does}. Keep its disk as it is."
        step = f"What going on from the branch means: kraft-audit rescue --plan {path} --branch {branch.name}"
        return Permission(Verdict.NO, reason, (step,))
    return of_branch(answer(without_others(question, branch)), question.path, branch)


def without_others(question: _Asked, branch: ChosenBranch) -> _Asked:
    """The question with the nodes that hold another log as good as gone."""
    return replace(question, gone=question.gone | frozenset(branch.left_out))


def of_branch(found: Permission, path: str, branch: ChosenBranch) -> Permission:
    """The answer, which says of which branch it is, and names it in its commands."""
    steps = tuple(branch.with_branch(step, path) for step in found.next_steps)
    return replace(found, reason=f"{found.reason} {branch.text}", next_steps=steps)
