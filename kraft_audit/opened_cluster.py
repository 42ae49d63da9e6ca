"""One cluster below a path, opened: what is read of it, and how often, is decided here alone.

A part of it is read when it is first needed, and then remembered.
"""

from __future__ import annotations

import shlex
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kraft_audit.archive.archived_captures import ArchivedRedactor
from kraft_audit.capture.path_plans import capture_named, captures_text
from kraft_audit.capture.plan import ARCHIVED_ROOT, ClusterPlan, Selection
from kraft_audit.capture.scanner import CHUNK_BYTES_MAX
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.ordered_reading import OrderedReading
from kraft_audit.quorum.rounds import ProvenRound, proven_rounds
from kraft_audit.reading import ClusterReading, ReadingSettings, read_survey
from kraft_audit.replay.cluster_replay import REPLAY_TABLES
from kraft_audit.replay.cluster_state import BranchName, Moment, branch_names, moment_of, round_of_capture
from kraft_audit.text.readable import any_of
from kraft_codec.errors import ChoiceError, InputError
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.random_access import Storage

if TYPE_CHECKING:
    from kraft_audit.replay.branch_choice import ChosenBranch
    from kraft_audit.rules.cluster_history import ClusterHistory

EVERYTHING: Final = Selection()


class NoCanonicalLogError(InputError):
    """A cluster without a canonical log: it has no state at any moment."""


@dataclass(frozen=True, slots=True)
class _JudgedReading:
    """What was read for the rules: the history, and the plan and reading with captures in the order that they prove."""

    history: ClusterHistory
    plan: ClusterPlan
    reading: ClusterReading


class OpenFiles:
    """Files that stay open until they are closed, or until no cluster that reads them is left."""

    def __init__(self, root: str, stack: ExitStack) -> None:
        self.root = root
        self.close = weakref.finalize(self, stack.close)


class OpenedCluster:
    """The captures of one cluster below a path, and the readings of them. What is read is remembered.

    `plan` names all captures; `storage` is that of the path.
    """

    def __init__(
        self,
        opened: OpenFiles,
        plan: ClusterPlan,
        storage: Storage,
        key: bytes,
        archives: Mapping[str, Storage] | None = None,
    ) -> None:
        self.plan = plan
        self.keeps_judged_records = False
        """Whether the records that the rules judge can be asked for afterwards; to be set before anything is read."""
        self.storage = storage
        self._opened = opened
        self._key = key
        self._archives = archives or {}
        self.branch: ChosenBranch | None = None
        """The branch that stands for the log, where logs contradict each other and one was named."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title} below {self.root}>"

    @property
    def cluster_id(self) -> str:
        return self.plan.cluster_id

    @property
    def title(self) -> str:
        """What headers call it: the cluster id, and which of several histories it is."""
        return self.plan.history_of.title(self.cluster_id)

    @property
    def root(self) -> str:
        return self._opened.root

    @property
    def captures(self) -> tuple[str, ...]:
        """The names of its captures, in the order in which they were taken as far as files show it."""
        return tuple(dict.fromkeys(replica.capture for replica in self.plan.replicas))

    def capture_name(self, capture: str) -> str:
        """A capture as it was planned, by its name or its path. Raises ChoiceError where there is none."""
        name = capture_named(capture, self.plan.replicas)
        if name not in self.captures:
            raise self._no_capture(capture)
        return name

    def _no_capture(self, capture: str | None) -> ChoiceError:
        there = captures_text(self.plan.replicas)
        return ChoiceError(self.root, f"no capture {capture!r} of cluster {self.title}: {there}")

    def open_storage(self, root: str) -> AbstractContextManager[Storage]:
        """The storage of a root, which is open already: an archive is unpacked once."""
        return nullcontext(self._archives.get(root, self.storage))

    @property
    def disks(self) -> ClusterPlan:
        """The plan without the copies of a lake: what lies below the path now."""
        return replace(self.plan, replicas=tuple(each for each in self.plan.replicas if not each.is_archived))

    @property
    def lake(self) -> str | None:
        """The lake that copies are read from; None where there is none."""
        return next((root.removeprefix(ARCHIVED_ROOT) for root in self._archives), None)

    def redactor(self) -> Redactor:
        """A redactor for one reading of this cluster: it numbers short secrets. A lake alone holds fingerprints."""
        return Redactor(self._key) if self.disks.replicas else ArchivedRedactor(self._key)

    @property
    def redaction_key(self) -> bytes:
        """The key of its fingerprints: what is read of another path can be compared under the same one."""
        return self._key

    @cached_property
    def reading(self) -> ClusterReading:
        """A reading of all captures, numbered as planned, whose records can be asked for."""
        return ClusterReading(self.plan, self.settings())

    @cached_property
    def survey(self) -> Survey:
        """What the headers of all replicas say, captures numbered as planned."""
        if "reading" in self.__dict__:
            return self.reading.survey
        return read_survey(self.plan, self.settings())

    @cached_property
    def _judged(self) -> _JudgedReading:
        from kraft_audit.pipeline.history_collector import read_history

        ordered = OrderedReading(self.plan, self.settings())
        history = read_history(ordered)
        if not self.keeps_judged_records:
            ordered.close()
        return _JudgedReading(history, ordered.plan, ordered.reading)

    @property
    def is_judged(self) -> bool:
        """Whether everything was read for the rules already."""
        return "_judged" in self.__dict__

    @property
    def judged_plan(self) -> ClusterPlan:
        """The plan with captures numbered as they prove."""
        return self._judged.plan

    @property
    def judged_reading(self) -> ClusterReading:
        """The reading that the rules judge, captures numbered as they prove; records with `keeps_judged_records`."""
        return self._judged.reading

    @property
    def history(self) -> ClusterHistory:
        """Everything that the rules read: the replayed tables of the whole canonical log."""
        return self._judged.history

    def settings(self, redactor: Redactor | None = None) -> ReadingSettings:
        """How this cluster is read."""
        return ReadingSettings(self.open_storage, redactor or self.redactor())

    def bronze(
        self,
        tables: Collection[str],
        *,
        selection: Selection = EVERYTHING,
        redactor: Redactor | None = None,
        chunk_bytes_max: int = CHUNK_BYTES_MAX,
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows of bronze tables as they are read: (table, batch)."""
        settings = replace(self.settings(redactor), selection=selection, chunk_bytes_max=chunk_bytes_max)
        with ClusterReading(self.plan, settings, keeps_records=False) as reading:
            yield from reading.bronze(frozenset(tables))

    def chosen_round(self, capture: str | None) -> ProvenRound:
        """The newest round of captures, or the one of that name. Raises ChoiceError where there is none."""
        rounds = proven_rounds(self.reading.survey, self.plan)
        chosen = round_of_capture(rounds, None if capture is None else self.capture_name(capture))
        if chosen is None:
            raise self._no_capture(capture)
        return chosen

    def moment(
        self,
        capture: str | None = None,
        *,
        tables: frozenset[str] = REPLAY_TABLES,
        branch: BranchName | None = None,
    ) -> Moment:
        """The newest capture, or the one of that name; `tables` are those to replay. Its canonical log, its newest
        snapshot where no log reaches it, or the branch that is named.

        Raises ChoiceError where there is no such capture or branch, NoCanonicalLogError where its logs contradict each
        other.
        """
        chosen = self.chosen_round(capture)
        try:
            moment = moment_of(self.reading, chosen, tables, branch)
        except ValueError as problem:
            raise ChoiceError(self.root, f"cluster {self.title}: {problem}") from None
        if moment is None:
            why = chosen.interval.undecided or "its logs contradict each other"
            names = branch_names(self.reading.survey, chosen)
            one = f"kraft-audit state {shlex.quote(self.root)} --branch {names[0]}" if names else ""
            shown = f"; name one with --branch: {any_of(names)}, as in   {one}" if names else ""
            raise NoCanonicalLogError(self.root, f"cluster {self.title} has no canonical log: {why}{shown}")
        return moment
