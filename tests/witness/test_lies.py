"""With one file of one disk changed, no answer is more confident than without the lie, or without that disk.

The other disks are a majority of the voters, and honest. A positive claim is judged by the more confident of two
captures: the honest one, and the one without the liar's folder. And no *yes* may stand that either of them denies.
Quorums that the engine played are lied about, and every capture of real Kafka at hand.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.commands.check import EXITS_IN_ORDER
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.rules.columns.quorum_standing import BROKEN, Standing
from kraft_audit.text.exit_codes import EXIT_UNREADABLE
from kraft_engine.runs.scenario_stage import Stage
from tests.builders.lies import EPOCH_AT, LOG, tell
from tests.builders.live_log import whole_batches

COUNT = int(os.environ.get("KRAFT_AUDIT_LIES", "200"))
"""How many lies are told in CI, half of them about real captures; a drill asks for more."""
QUICK = 12
ASKED = (Action.START, Action.RESTART, Action.DELETE_VOLUME)
Asked = tuple[str, int, frozenset[int]]
WELL = (Standing.HEALTHY, Standing.AT_REST)


@dataclass(frozen=True)
class Claims:
    """What is claimed of a capture: by `check`, and by `may-i` of each voter. `low` is the committed end."""

    exit_code: int
    standing: Standing
    low: int
    answers: dict[Asked, Verdict]

    @property
    def yes(self) -> frozenset[Asked]:
        return frozenset(asked for asked, verdict in self.answers.items() if verdict is Verdict.YES)

    @property
    def denied(self) -> frozenset[Asked]:
        return frozenset(asked for asked, verdict in self.answers.items() if verdict is Verdict.NO)


def claims_of(path: Path, voters: tuple[int, ...]) -> Claims:
    with kraft_audit.open(str(path)) as clusters:
        judged = [(cluster, cluster.incidents(cluster.check())) for cluster in clusters]
        codes = [cluster.situation(folded).exit_code for cluster, folded in judged]
        largest = max((cluster for cluster, _ in judged), key=lambda cluster: len(cluster.plan.replicas))
        standing = largest.standing()
        answers = {} if len(judged) > 1 else dict(_answers(largest, path, voters))
        code = max(codes, key=EXITS_IN_ORDER.index)
        return Claims(code, standing.standing, standing.committed_to or 0, answers)


def _answers(cluster: Cluster, path: Path, voters: tuple[int, ...]) -> Iterator[tuple[Asked, Verdict]]:
    for node in voters:
        for action in ASKED:
            for stopped in (frozenset[int](), *(frozenset({other}) for other in voters if other != node)):
                question = Question(action, node, str(path), stopped=stopped)
                yield (action.value, node, stopped), cluster.may_i(question).verdict


@dataclass(frozen=True)
class Honest:
    """An honest capture, what is claimed of it, and the folders of the disks without which a majority stays."""

    path: Path
    voters: tuple[int, ...]
    disks: tuple[str, ...]

    @cache  # noqa: B019
    def claims(self) -> Claims:
        return claims_of(self.path, self.voters)

    @cache  # noqa: B019
    def without(self, disk: str, folder: Path) -> Claims:
        rest = folder / "without"
        shutil.copytree(self.path, rest)
        shutil.rmtree(rest / disk)
        is_left = any(rest.rglob("__cluster_metadata-0"))
        claims = claims_of(rest, self.voters) if is_left else Claims(EXIT_UNREADABLE, Standing.NOT_JUDGED, 0, {})
        shutil.rmtree(rest)
        return claims


def quorum(out: Path, seed: int, controllers: int) -> Honest:
    """A quorum with a broker that changed its leader, wrote topics, and was copied at one moment."""
    stage = Stage(seed, out / f"played-{seed}")
    voters = tuple(range(1, controllers + 1))
    stage.controllers(*voters)
    stage.brokers(11)
    stage.topic("orders", [11])
    if seed % 2:
        leader = stage.leader().id
        stage.crash(leader)
        stage.run_ms(6_000)
        stage.start(leader)
        stage.settle()
    for number in range(seed % 4):
        stage.topic(f"late-{number}", [11])
    stage.run_ms(3_000)
    stage.capture("whole")
    return Honest(out / f"played-{seed}" / "whole", voters, tuple(f"node-{voter}" for voter in voters))


@pytest.fixture(scope="module")
def quorums(tmp_path_factory: pytest.TempPathFactory) -> list[Honest]:
    out = tmp_path_factory.mktemp("quorums")
    return [quorum(out, seed, controllers) for seed, controllers in ((4, 3), (5, 3), (6, 5), (7, 5))]


class Captures:
    """The captures below a folder in which other disks than one are a majority of the voters."""

    def __init__(self, root: Path) -> None:
        tops = sorted(top for top in root.iterdir() if top.is_dir())
        folders = [*tops, *(path for top in tops for path in sorted(top.iterdir()) if path.is_dir())]
        self._folders = [folder for folder in folders if any(folder.rglob("__cluster_metadata-0/*.log"))]

    def any(self, seed: int) -> Honest:
        chance = random.Random(seed)  # noqa: S311
        ordered = chance.sample(self._folders, len(self._folders))
        return next(honest for folder in ordered if (honest := _capture(folder)) is not None)


@cache
def _capture(folder: Path) -> Honest | None:
    with kraft_audit.open(str(folder)) as clusters:
        if len(clusters.plans) > 1:
            return None
        (cluster,) = clusters
        replicas, standing = cluster.plan.replicas, cluster.standing()
        nodes = [replica.node_id for replica in replicas]
        disks = [
            replica.path
            for replica in replicas
            if len({*standing.captured} - {replica.node_id}) >= standing.majority and replica.path not in ("", ".")
        ]
        return Honest(folder, standing.voters, tuple(disks)) if disks and len({*nodes}) == len(nodes) else None


def overclaims(honest: Honest, stranger: Honest, seed: int, folder: Path) -> list[str]:
    """What is claimed beyond both captures once a lie is told of one disk; nothing where all is well."""
    chance = random.Random(seed)  # noqa: S311
    disk = chance.choice(honest.disks)
    other = honest if chance.random() < 0.8 else stranger
    return lied_about(
        honest, disk, lambda node: tell(seed, node, other.path / chance.choice(other.disks)), folder, f"seed {seed}"
    )


def lied_about(honest: Honest, disk: str, lie: Callable[[Path], str], folder: Path, name: str) -> list[str]:
    lied = folder / "lied"
    shutil.copytree(honest.path, lied)
    told = lie(lied / disk)
    found, both = claims_of(lied, honest.voters), (honest.claims(), honest.without(disk, folder))
    shutil.rmtree(lied)
    where = f"{honest.path.parent.name}/{honest.path.name}"
    return [f"{name}, {where}, {told}: {what}" for what in _beyond(found, both)]


def _beyond(found: Claims, both: tuple[Claims, Claims]) -> Iterator[str]:
    if found.exit_code == 0 and all(each.exit_code for each in both):
        yield "exit 0"
    if found.standing in WELL and not any(each.standing in WELL for each in both):
        yield str(found.standing)
    if found.standing in BROKEN and not any(each.standing in BROKEN for each in both):
        yield f"a broken quorum, {found.standing}"
    if found.low > max(each.low for each in both):
        yield f"committed to {found.low}"
    for asked in found.yes:
        if any(asked in each.denied for each in both) or not any(asked in each.yes for each in both):
            yield f"yes: {asked}"


def of_quorums(quorums: list[Honest], seeds: range, folder: Path) -> list[str]:
    chosen = [(quorums[seed % len(quorums)], quorums[(seed + 1) % len(quorums)], seed) for seed in seeds]
    return [text for honest, stranger, seed in chosen for text in overclaims(honest, stranger, seed, folder)]


@pytest.fixture(scope="module")
def unpacked_cases(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cases, the archives in them unpacked."""
    folder = tmp_path_factory.mktemp("cases")
    for case in sorted(path for path in cases.iterdir() if path.is_dir()):
        shutil.copytree(case, folder / case.name, ignore=shutil.ignore_patterns("*.tgz"))
        for archive in sorted(case.glob("*.tgz")):
            shutil.unpack_archive(archive, folder / case.name, filter="data")
    return folder


@pytest.mark.slow
def test_a_few_lies(quorums: list[Honest], tmp_path: Path) -> None:
    assert of_quorums(quorums, range(QUICK), tmp_path) == []


@pytest.mark.ci
@pytest.mark.timeout(3_600)
def test_no_lie_makes_an_answer_more_confident(quorums: list[Honest], tmp_path: Path) -> None:
    assert of_quorums(quorums, range(QUICK, QUICK + COUNT // 2), tmp_path) == []


@pytest.mark.ci
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("source", ["captured_logs", "wild", "unpacked_cases"])
def test_no_lie_about_a_real_capture_does(source: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    captures = Captures(request.getfixturevalue(source))
    wrong = []
    for seed in range(COUNT // 2 // 3):
        wrong += overclaims(captures.any(seed), captures.any(seed + 1), seed, tmp_path)
    assert wrong == []


STATE = (
    '{"clusterId":"","leaderId":%d,"leaderEpoch":%d,"votedId":-1,"appliedOffset":0,"currentVoters":%s,"data_version":0}'
)
VOTERS = '[{"voterId":1},{"voterId":2},{"voterId":3}]'


def _persisted(leader: int, epoch: int) -> Callable[[Path], str]:
    text = STATE % (leader, epoch, VOTERS)
    return lambda node: str((node / LOG / "quorum-state").write_text(text))


def _cut(node: Path) -> str:
    path = node / LOG / "00000000000000000000.log"
    return str(path.write_bytes(path.read_bytes()[:4]))


def _last_epoch(node: Path) -> str:
    path = node / LOG / "00000000000000000000.log"
    batches = [batch.data for batch in whole_batches(path.read_bytes())]
    last = bytearray(batches[-1])
    last[EPOCH_AT + 3] ^= 4
    return str(path.write_bytes(b"".join([*batches[:-1], bytes(last)])))


def _cluster_id(node: Path) -> str:
    path = node / "meta.properties"
    return str(path.write_text(re.sub(r"(?m)^cluster.id=.*$", "cluster.id=AAAAAAAAAAAAAAAAAAAAAQ", path.read_text())))


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(_persisted(1, 50), id="a leader of an epoch without a record"),
        pytest.param(_persisted(-1, 3), id="an epoch without a record"),
        pytest.param(_cut, id="four bytes of a log"),
        pytest.param(_last_epoch, id="another epoch in the last batch"),
        pytest.param(_cluster_id, id="another cluster's id"),
    ],
)
def test_the_disk_that_alone_holds_the_newest_records(wild: Path, lie: Callable[[Path], str], tmp_path: Path) -> None:
    """Node 1 leads and was copied before node 3, which so has records that 1 and 2 lack: none may start without it."""
    honest = _capture(wild / "w13")
    assert honest is not None
    (disk,) = [disk for disk in honest.disks if disk.endswith("kafka3")]
    assert lied_about(honest, disk, lie, tmp_path, "kept") == []


@pytest.mark.slow
def test_the_honest_captures_are_claimed_in_full(quorums: list[Honest]) -> None:
    """The property means something only where there is something to claim."""
    for honest in quorums:
        claims = honest.claims()
        assert claims.low > 0
        assert any(action == "start" for action, _, _ in claims.yes)
        assert claims.standing is Standing.HEALTHY
