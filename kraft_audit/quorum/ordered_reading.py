"""A reading whose captures are numbered as what was read proves their order, where planning could only guess it.

Planning looks at epochs and at the sizes of logs; what was committed, and what snapshots say, it cannot see. Rules go
by the number of a capture, so it has to agree with the order of `proven_rounds`. That order decides which capture
shows a batch first, so storages note what they answered: the second time a file is what it was the first time,
whatever has become of it since.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from kraft_audit.capture.earlier_survey import EarlierSurvey
from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan
from kraft_audit.capture.record_store import Spool, SpoolPlace
from kraft_audit.capture.replica import OpenStorage
from kraft_audit.quorum.rounds import proven_rounds
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_codec.errors import CodecError
from kraft_codec.storage.random_access import Buffer, Closeable, FileChange, Listing, RandomAccess, Storage

NOTED_BYTES_MAX: Final = 8 << 30


class OrderedReading(Closeable):
    """A whole plan, read with its captures numbered in time.

        with OrderedReading(plan, settings) as ordered:
            for reading in ordered:
                rows = list(reading.bronze(tables))

    The loop runs once, and once more where the captures prove another order than the plan has: then the bytes come from
    what was kept of the first reading, and what was made of that does not count. Afterwards `plan` is numbered in time
    as far as the captures prove it, and `reading` stays open. `earlier` is as in `ClusterReading`. Raises InputError
    where a storage cannot be opened.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        settings: ReadingSettings,
        *,
        keeps_records: bool = True,
        earlier: EarlierSurvey | None = None,
    ) -> None:
        self.plan = plan
        self._earlier = earlier
        self._settings = settings
        self._keeps_records = keeps_records
        self._storages: NotedStorages | None = None
        if has_several_captures(plan):
            self._storages = NotedStorages(settings.open_storage)
            self._settings = self._storages.noted(settings)
        self.reading = self._new_reading()

    def __iter__(self) -> Iterator[ClusterReading]:
        yield self.reading
        if self._storages is None:
            return
        order = [each.number for each in proven_rounds(self.reading.survey, self.reading.plan)]
        if order != sorted(order):
            self.plan = _numbered(self.plan, dict(zip(order, sorted(order), strict=True)))
            self.reading.close()
            self._storages.begin_again()
            self.reading = self._new_reading()
            yield self.reading

    def read(self) -> ClusterReading:
        """The reading, for whoever needs no bronze rows."""
        for reading in self:
            reading.survey  # noqa: B018  # reads the cluster
        return self.reading

    def once_more(self, settings: ReadingSettings) -> ClusterReading:
        """A reading of `plan` for its bronze rows: of a whole plan with several captures from what was kept."""
        if self._storages is not None and self.plan.is_whole:
            self._storages.begin_again()
            settings = self._storages.noted(settings)
        return ClusterReading(self.plan, settings, keeps_records=False)

    def close(self) -> None:
        """Closes the reading and the storages."""
        self.reading.close()
        if self._storages is not None:
            self._storages.close()

    def _new_reading(self) -> ClusterReading:
        return ClusterReading(
            self.plan.whole(), self._settings, keeps_records=self._keeps_records, earlier=self._earlier
        )


def has_several_captures(plan: ClusterPlan) -> bool:
    """Whether a plan has captures whose order has to be proven."""
    return len({replica.capture_number for replica in (*plan.replicas, *plan.context)}) > 1


def _numbered(plan: ClusterPlan, number_of: Mapping[int, int]) -> ClusterPlan:
    return replace(
        plan,
        replicas=_numbered_replicas(plan.replicas, number_of),
        context=_numbered_replicas(plan.context, number_of),
    )


def _numbered_replicas(replicas: Sequence[ReplicaPlan], number_of: Mapping[int, int]) -> tuple[ReplicaPlan, ...]:
    """Replicas that were refused have no place in time, and keep theirs."""
    numbered = (
        replace(replica, capture_number=number_of.get(replica.capture_number, replica.capture_number))
        for replica in replicas
    )
    return tuple(sorted(numbered, key=lambda replica: replica.sort_key))


class NotedStorages:
    """Opens storages and notes what their files answer, until `close`.

    After `begin_again` the same questions get the same answers, in the same order. What was not asked before, and bytes
    that found no room, come from the storage.
    """

    def __init__(self, open_storage: OpenStorage) -> None:
        self.spool = Spool(NOTED_BYTES_MAX)
        self._open_storage = open_storage
        self._stack = ExitStack()
        self._storages: dict[str, Storage] = {}
        self._answers: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        self._asked: Counter[tuple[Any, ...]] = Counter()
        self._is_closed = False

    @contextmanager
    def open(self, root: str) -> Iterator[Storage]:
        """The storage of a root; after `close` opened for this once. Raises InputError where it cannot be opened."""
        if self._is_closed:
            # What a history asks of brokers' disks may come later: a closed storage would pass for one without files.
            with self._open_storage(root) as storage:
                yield storage
            return
        if root not in self._storages:
            self._storages[root] = self._stack.enter_context(self._open_storage(root))
        yield _NotedStorage(self, root, self._storages[root])

    def noted(self, settings: ReadingSettings) -> ReadingSettings:
        """The settings with these storages, and a clock whose times are noted, too: what was read has one time."""

        def clock_ms() -> int:
            return int(self.answer(("clock",), settings.clock_ms))

        return replace(settings, open_storage=self.open, clock_ms=clock_ms)

    def begin_again(self) -> None:
        """From here on files are what they were."""
        self._asked.clear()

    def close(self) -> None:
        """Closes the storages and lets go of the notes."""
        self._is_closed = True
        self._stack.close()
        self.spool.close()

    def answer(self, question: tuple[Any, ...], ask: Callable[[], Any]) -> Any:
        """What `ask` returns or raises, or what it did when this question was asked as often before."""
        answers, number = self._answers[question], self._asked[question]
        self._asked[question] += 1
        if number == len(answers):
            try:
                answers.append(ask())
            except CodecError as error:
                answers.append(error)
        if isinstance(answers[number], CodecError):
            raise answers[number]
        return answers[number]


class _NotedStorage(Storage):
    def __init__(self, notes: NotedStorages, root: str, inner: Storage) -> None:
        super().__init__(inner.location, start=inner.start, is_immutable=inner.is_immutable, limits=inner.limits)
        self._notes = notes
        self._root = root
        self._inner = inner

    def list_dir(self, path: str) -> Listing:
        return self._inner.list_dir(path)

    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        opened: list[RandomAccess] = []
        question = (self._root, path, planned_size_bytes)

        def size_and_time() -> tuple[int, int]:
            opened.append(self._inner.open(path, planned_size_bytes))
            return opened[0].size_bytes, opened[0].mtime_ms

        size_bytes, mtime_ms = self._notes.answer(question, size_and_time)
        return _NotedFile(self._notes, self._inner, question, opened, size_bytes, mtime_ms)

    def close(self) -> None:
        """Storages are closed with all that was noted of them."""

    def medium(self, path: str) -> str:
        return self._inner.medium(path)


class _NotedFile(RandomAccess):
    """A file as it was when it was first opened; opened itself (`opened`) where there is no note of an answer."""

    def __init__(
        self,
        notes: NotedStorages,
        storage: Storage,
        question: tuple[str, str, int | None],
        opened: list[RandomAccess],
        size_bytes: int,
        mtime_ms: int,
    ) -> None:
        super().__init__(question[1], size_bytes, mtime_ms)
        self._notes = notes
        self._storage = storage
        self._question = question
        self._opened = opened

    def read_into(self, position: int, buffer: Buffer) -> None:
        self.require(position, len(buffer))
        is_read = False

        def read() -> SpoolPlace | None:
            nonlocal is_read
            self._file().read_into(position, buffer)
            is_read = True
            return self._notes.spool.add(buffer)

        place = self._notes.answer((*self._question, position, len(buffer)), read)
        if place is not None and not is_read:
            buffer[:] = self._notes.spool.load(place)
        elif not is_read:
            self._file().read_into(position, buffer)

    def change(self) -> FileChange:
        change: FileChange = self._notes.answer((*self._question, "change"), lambda: self._file().change())
        return change

    def next_data(self, position: int) -> int:
        next_position: int = self._notes.answer((*self._question, position), lambda: self._file().next_data(position))
        return next_position

    def close(self) -> None:
        for file in self._opened:
            file.close()

    def _file(self) -> RandomAccess:
        if not self._opened:
            self._opened.append(self._storage.open(self.path, self._question[2]))
        return self._opened[0]
