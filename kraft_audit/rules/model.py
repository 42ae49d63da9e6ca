"""What a rule is, and what it says of a cluster.

A rule reads a `ClusterHistory` and gives cases. A case becomes a finding with the rule's text around it. A finding is
known by (rule, cluster, subject, offset or time at which its episode began), so that a re-run finds the same one.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kraft_audit.rules.history import ClusterHistory


class Severity(enum.StrEnum):
    """critical: data lost or two truths possible; high: one fault away; medium: weakened; low: hygiene."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


class Status(enum.StrEnum):
    """What a rule came to; undecided always says why."""

    RAISED = "raised"
    CLEAR = "clear"
    UNDECIDED = "undecided"


class Scope(enum.StrEnum):
    """What the subject of a finding is."""

    VOTERS = "voters"
    LOG = "log"
    PARTITION = "partition"
    BROKER = "broker"
    CLUSTER = "cluster"


Value = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number (or text) of a rule that people may change: the unit is the last word of its name."""

    name: str
    default: Value
    comment: str


Thresholds = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact behind a finding: where it stands on disk, what it was before and after, as far as is known."""

    text: str
    offset: int | None = None
    epoch: int | None = None
    timestamp_ms: int | None = None
    node_id: int | None = None
    path: str | None = None
    file_name: str | None = None
    position: int | None = None
    before: str | None = None
    after: str | None = None


class DeferredEvidence(Sequence[Evidence]):
    """Evidence that is put into words when somebody reads it: of ten thousand findings a person sees the first few.

    `make(*of)` gives it.
    """

    __slots__ = ("_known", "_make", "_of")

    def __init__(self, make: Callable[..., tuple[Evidence, ...]], *of: Any) -> None:
        self._make = make
        self._of = of
        self._known: tuple[Evidence, ...] | None = None

    def _told(self) -> tuple[Evidence, ...]:
        if self._known is None:
            self._known = self._make(*self._of)
        return self._known

    def __len__(self) -> int:
        return len(self._told())

    @overload
    def __getitem__(self, index: int) -> Evidence: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Evidence, ...]: ...
    def __getitem__(self, index: int | slice) -> Evidence | tuple[Evidence, ...]:
        return self._told()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._told() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._told())


class Case(NamedTuple):
    """What a rule function yields: one subject, one episode [from, to); to is None while it lasts.

    A case with `undecided` set is no finding: it says what could not be judged and why. `severity`, `why` and
    `what_to_do` are set where those of the rule do not fit. A tuple, as Python makes these five times as fast as frozen
    dataclasses, and there may be fifty thousand; so is Finding.
    """

    subject: str
    summary: str
    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    epoch: int | None = None
    evidence: Sequence[Evidence] = ()
    severity: Severity | None = None
    what_to_do: str | None = None
    undecided: str | None = None
    is_over: bool = False
    why: str | None = None


def undecided(subject: str, reason: str, **where: int | None) -> Case:
    """A case that the captures do not decide."""
    return Case(subject, reason, undecided=reason, **where)  # type: ignore[arg-type]  # offsets and times by name


RuleFunction = Callable[["ClusterHistory", Thresholds], Iterable[Case]]
RowsThatMatter = Callable[["ClusterHistory"], "npt.NDArray[np.bool_]"]


@dataclass(frozen=True, slots=True)
class RuleText:
    """What people read about a rule; one entry of a file in `texts/`."""

    raised_when: str
    why: str
    what_to_do: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: `id` and `name` never change. `needs` are the tables without which it says undecided.

    `across` is for a rule that looks at partitions of more than one topic: which rows of `partition_changes` (sorted as
    `partition_states` does) are enough for it, where the whole is too large to be held at once. `asked_by` is for a
    rule that not everybody wants: the threshold without which, at 0, it is not run.
    """

    id: str
    name: str
    severity: Severity
    scope: Scope
    needs: tuple[str, ...]
    text: RuleText
    function: RuleFunction
    thresholds: tuple[Threshold, ...] = ()
    dialects: tuple[Dialect, ...] = tuple(Dialect)
    across: RowsThatMatter | None = None
    asked_by: str | None = None

    @property
    def defaults(self) -> dict[str, Value]:
        return {threshold.name: threshold.default for threshold in self.thresholds}


@dataclass(frozen=True, slots=True)
class Waiver:
    """A finding that somebody accepts until a day; `cluster` and `subject` are as told, or shell patterns."""

    rule: str
    cluster: str
    subject: str
    who: str
    why: str
    until: str


class Finding(NamedTuple):
    """A case with its rule: a row of the table `findings`. A rule that is clear has one with an empty subject."""

    finding_id: str
    cluster_id: str
    rule: str
    name: str
    severity: Severity
    scope: Scope
    status: Status
    subject: str
    summary: str
    reason: str | None
    from_offset: int | None
    to_offset: int | None
    from_ms: int | None
    to_ms: int | None
    epoch: int | None
    is_over: bool
    evidence: Sequence[Evidence]
    why: str
    what_to_do: str
    waiver: Waiver | None = None
    expired_waiver: Waiver | None = None


def finding_id(rule: str, cluster_id: str, subject: str, began: int | None) -> str:
    """A stable name of a finding: 32 hex digits of (rule, cluster, subject, offset or time of its beginning)."""
    text = "\0".join((rule, cluster_id, subject, "" if began is None else str(began)))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def finding_of(rule: Rule, cluster_id: str, case: Case) -> Finding:
    """A case with the rule's text around it."""
    status = Status.RAISED if case.undecided is None else Status.UNDECIDED
    began = case.from_offset if case.from_offset is not None else case.from_ms
    # By place, as there may be ten thousands of them.
    return Finding(
        finding_id(rule.id, cluster_id, case.subject, began),
        cluster_id,
        rule.id,
        rule.name,
        case.severity or rule.severity,
        rule.scope,
        status,
        case.subject,
        case.summary,
        case.undecided,
        case.from_offset,
        case.to_offset,
        case.from_ms,
        case.to_ms,
        case.epoch,
        case.is_over or case.to_offset is not None,
        case.evidence,
        case.why or rule.text.why,
        case.what_to_do or rule.text.what_to_do,
    )


def clear_finding(rule: Rule, cluster_id: str, reason: str | None = None) -> Finding:
    """A rule that looked and found nothing."""
    case = Case("", reason or f"{rule.name}: nothing found")
    return finding_of(rule, cluster_id, case)._replace(status=Status.CLEAR)
