"""What `check` opens with where a voter's disk lost committed records."""

from __future__ import annotations

from itertools import takewhile

from kraft_audit.findings.answer import AnswerLine, answer_lines
from kraft_audit.incidents.folding import fold
from kraft_audit.rules.judging import check
from tests.builders.histories import HistoryBuilder, directory
from tests.builders.log_stories import went_back


def _answer(build: HistoryBuilder) -> list[AnswerLine]:
    history = build.history()
    folded = fold(history, list(check(history, only=("KQ002", "KQ020", "KQ021", "KQ023", "KQ024", "KQ025"))))
    return list(answer_lines(history, folded, "there.tgz"))


def _wiped(build: HistoryBuilder, *, epoch: int = 2) -> None:
    """Offset 59 of epoch 2 is committed. Node 3 led and is empty, without its vote; node 1 ends at 20."""
    build.voters(1, 2, 3).leader_epoch(1, 2, 0, to_offset=20)
    build.leader_epoch(2, 3, 20, to_offset=60, granting_voters=[2, 3])
    build.log(1, 2, to=20).log(2, start=20, to=60, epoch=2).watermark(60, 60, end=60, epoch=2)
    build.capture(1, 20, epoch=2, last_epoch=1).capture(2, 60, epoch=2)
    build.capture(3, 0, epoch=epoch, last_epoch=None)


def _next(answer: list[AnswerLine]) -> list[str]:
    start = [line.word for line in answer].index("NEXT")
    return [line.text for line in takewhile(lambda line: line.text, answer[start:])]


def test_it_says_who_could_elect_a_leader_and_how_to_replace_the_disk(build: HistoryBuilder) -> None:
    _wiped(build)
    answer = _answer(build)
    (quorum,) = [line.text for line in answer if line.word == "QUORUM"]
    assert "Node 3's disk" in quorum
    assert "offsets 20–59" in quorum
    steps = _next(answer)
    assert steps[0].startswith("Do not start node 3.")
    assert f"remove-controller --controller-id 3 --controller-directory-id {directory(3)}" in steps[1]
    assert steps[3].endswith("kraft-audit may-i start 3 there.tgz")


def test_it_comes_before_the_advice_to_start_a_controller(build: HistoryBuilder) -> None:
    """Without a leader one more node would make a majority, and node 3 is one that could be started."""
    _wiped(build, epoch=3)
    text = "\n".join(_next(_answer(build)))
    assert "Do not start node 3." in text
    assert "Start controller" not in text


def test_a_disk_that_fetched_everything_again_is_not_what_to_do_next(build: HistoryBuilder) -> None:
    went_back(10)(build)
    assert [line.text for line in _answer(build) if line.word == "QUORUM" and "node 1 lacks" in line.text.lower()]
    build.log(1, to=40).capture(1, 40, when=120_000, path="again/node-1")
    assert not [line.text for line in _answer(build) if line.word == "QUORUM" and "lacks" in line.text]
