"""Runs beyond Raft's model: bounds and states hold up to the damage, and damage that shows is raised or undecided."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kraft_audit.rules.judging import check
from kraft_audit.rules.registry import texts
from kraft_audit.rules.rule_model import Status
from kraft_engine import simulate
from tests.witness.audited import FAST_FOLDER, Audited
from tests.witness.comparison import Comparison, bounds, epochs, partitions, voters
from tests.witness.expected_damage import altered_offsets, emptied_voters
from tests.witness.runs import RunResult
from tests.witness.truth import Truth

BEYOND_MODEL = ("random-beyond", "random-raft-beyond")
DAMAGE_RULES = frozenset(
    {
        "KQ001",
        "KQ002",
        "KQ003",
        "KQ004",
        "KQ006",
        "KQ007",
        "KQ008",
        "KQ010",
        "KQ011",
        "KQ012",
        "KQ014",
        "KQ015",
        "KQ020",
        "KQ021",
        "KV012",
    }
)
"""Rules that tell of a log that lost, changed or forked what it held, or began twice."""
COPIES = frozenset({"restored from a backup", "copied log dir", "cloned machine"})
LOSSES = COPIES | {
    "reformatted, same cluster id", "wiped disk, same directory id", "several voters wiped at once", "cut at the front",
    "lost a synced tail", "bit rot", "misdirected write",
}  # fmt: skip
CAUSES: dict[str, frozenset[str]] = {
    "KQ007": COPIES | {"cut at the front", "bit rot", "misdirected write"},
    "KQ008": frozenset({"bit rot", "misdirected write"}),
    "KQ010": frozenset(),
    "KQ014": LOSSES | {"quorum-state lost"},
    "KQ020": LOSSES | {"altered batch"},
    "KQ022": frozenset({"altered batch", "reformatted, same cluster id"}),
}
"""What a rule that names a disk may come from: the disk is a damaged one, or was cut to what a damaged one held.

An altered batch spreads to those that fetch it. A node formatted `--standalone` writes an epoch 1 of its own, and after
it those batches of the others that its log matches by epoch. Where the voters lost their disks, they count their epochs
from the start: an epoch that was led twice has two logs, and each disk holds one of them.
"""


_CASES = {None: texts()["KQ022"], **texts()["KQ022"]["cases"]}
CHANGED = frozenset(_CASES[case]["why"] for case in (None, "undecided"))
LED_TWICE = frozenset(_CASES[case]["why"] for case in ("restored", "began_again", "outvoted", "undecided_led_twice"))
"""How KQ022 says that two versions came about."""


def compare_beyond(scenario: str, seed: int) -> RunResult:
    """Plays one seed with damage; a disagreement counts unless the audit says that the log is damaged."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kraft-witness-", dir=FAST_FOLDER) as folder:
        out = Path(folder) / "run"
        played = simulate(scenario, seed, out)
        found = _compare(out)
        found.counts["events"] += played.event_count
    return RunResult(scenario, seed, found.counts, tuple(found.disagreements), time.monotonic() - start)


def _compare(out: Path) -> Comparison:
    truth = Truth.of(out)
    audited = Audited.of(out, is_judged=True)
    found, result = Comparison(), Comparison()
    without_trace = (
        *(f"{name}: high " for name in _looking_behind(truth, audited)),
        *(f"{name}: low " for name in _looking_ahead(truth, audited)),
    )
    for compared in (bounds, epochs, voters, partitions):
        reported = compared(truth, audited, result.counts)
        found.add(text for text in reported if not text.startswith(without_trace))
    result.counts["damaged"] += bool(truth.damage)
    result.counts["distinguished"] += bool(found.disagreements)
    undecided = any(
        audited_round.interval.canonical is None or audited_round.interval.high is None
        for audited_round in audited.rounds
    )
    if found.disagreements and not undecided and not _says_damage(audited) and not _left_no_trace(truth, audited):
        result.add(f"nothing is raised, but {text}" for text in found.disagreements)
    if found.disagreements and not truth.damage:
        result.add(f"no damage, but {text}" for text in found.disagreements)
    result.add(_without_cause(truth, audited))
    result.add(_losses_not_found(truth, audited, result.counts))
    result.add(_accidents_not_found(truth, audited, result.counts))
    return result


def _without_cause(truth: Truth, audited: Audited) -> Iterator[str]:
    """Findings of a damaged disk that nothing in the truth explains."""
    elections = Counter(line["epoch"] for line in truth.lines["elected"])
    first_led_twice = min((epoch for epoch, count in elections.items() if count > 1), default=None)
    for finding in check(audited.history, only=frozenset(CAUSES)):
        if finding.status is not Status.RAISED:
            continue
        causes = [damage for damage in truth.damage if damage["label"] in CAUSES[finding.rule]]
        nodes = {int(number) for number in _numbers(finding.subject)}  # "node 2", "voters 2 and 3"
        followed = {
            line["node"] for line in truth.lines["truncated"] if causes and line["time_ms"] >= causes[0]["time_ms"]
        }
        named = {damage["node"] for damage in causes if damage["label"] != "altered batch"}
        if finding.rule == "KQ022":
            at = {damage["from_offset"] for damage in causes if damage["label"] == "altered batch"}
            is_led_twice = first_led_twice is not None and first_led_twice <= (finding.epoch or 0)
            is_explained = finding.from_offset in at or nodes <= named or is_led_twice
            if finding.why in LED_TWICE and not is_led_twice:
                yield f"KQ022 says that epoch {finding.epoch} was led twice from {finding.from_offset}"
            if finding.why in CHANGED and not at:
                yield f"KQ022 says that {finding.subject} was changed from {finding.from_offset}"
        else:
            # Of several that leave no majority, some may only be behind.
            is_explained = bool(nodes & (followed | {damage["node"] for damage in causes}))
        if not is_explained:
            yield f"{finding.rule} names {finding.subject} from {finding.from_offset}, which nothing has damaged so"


def _losses_not_found(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    """Committed records that a capture held, and that no disk held any more when later captures were taken."""
    for loss in truth.lines["committed_lost"]:
        times = [line["time_ms"] for line in truth.lines["capture"]]
        if min(times) > loss["time_ms"] or max(times) < loss["time_ms"]:
            continue
        epoch = truth.committed_epoch(loss["from_offset"])
        held = [line for line in audited.survey.epochs if line.from_offset <= loss["from_offset"] < line.to_offset]
        if epoch not in {line.epoch for line in held}:
            continue
        if _look_earlier(truth, loss["time_ms"]):
            continue
        counts["losses"] += 1
        if not _says_damage(audited):
            yield f"committed offsets {loss['from_offset']} to {loss['to_offset']} are on no disk, and nothing says so"


def _look_earlier(truth: Truth, loss_ms: int) -> bool:
    """Whether each capture since a loss looks like one that was taken before all others.

    So it is where the only voter's whole disk is put back from a backup, quorum-state and all, and no election follows:
    its log is a beginning of the log that was captured before. Captures do not prove when they were taken.
    """
    before = [line for line in truth.lines["capture"] if line["time_ms"] < loss_ms]
    epochs_before: dict[int, int] = {}
    for line in before:
        for node in line["nodes"]:
            node_id = node["node_id"]
            epochs_before[node_id] = min(node["epoch"], epochs_before.get(node_id, node["epoch"]))
    return all(
        node["epoch"] <= epochs_before.get(node["node_id"], -1)
        and (not node["log_end_offset"] or truth.committed_epoch(node["log_end_offset"] - 1) == node["last_epoch"])
        for line in truth.lines["capture"]
        if line["time_ms"] > loss_ms
        for node in line["nodes"]
    )


def _accidents_not_found(truth: Truth, audited: Audited, counts: Counter[str]) -> Iterator[str]:
    """Accidents that captures show for certain, of which the rule that is about them says nothing."""
    offsets, emptied = altered_offsets(truth), emptied_voters(truth)
    if not offsets and not emptied:
        return
    said = [
        finding
        for finding in check(audited.history, only=frozenset({"KQ020", "KQ021", "KQ022"}))
        if finding.status in (Status.RAISED, Status.UNDECIDED)
    ]
    starts = [finding.from_offset for finding in said if finding.rule == "KQ022" and finding.from_offset is not None]
    counts["altered batches"] += len(offsets)
    for offset in sorted(offsets):
        if not any(start <= offset for start in starts):
            yield f"KQ022 does not show the altered batch at {offset}"
    named = {int(number) for finding in said if finding.rule != "KQ022" for number in _numbers(finding.subject)}
    counts["emptied voters"] += len(emptied)
    for node in sorted(emptied - named):
        yield f"neither KQ020 nor KQ021 names node {node}, whose log was wiped"


def _numbers(subject: str) -> list[str]:
    return re.findall(r"\d+", subject)


def _looking_behind(truth: Truth, audited: Audited) -> Iterator[str]:
    """Captures of which an upper bound is wrong as a log ends in what its disk lost: a tail, or from bad bytes on.

    It looks as if it had not got so far when it was read. What was committed is on other disks, and later there again.
    """
    for audited_round in audited.rounds:
        capture, high = truth.captures[audited_round.capture], audited_round.interval.high
        if high is None or high >= capture.committed_at_start:
            continue
        ends = truth.log_ends(capture.name)
        for damage in truth.damage_before(capture.name):
            end = ends.get(damage["node"], -1) if "from_offset" in damage else None
            if end is not None and damage["from_offset"] <= end <= high < damage.get("to_offset", high + 1):
                yield capture.name
                break


def _looking_ahead(truth: Truth, audited: Audited) -> Iterator[str]:
    """Captures of which a lower bound is wrong as a disk holds a copy of another one's log.

    It looks as if the node had fetched in time what it was given later: the bytes are the same.
    """
    for audited_round in audited.rounds:
        capture = truth.captures[audited_round.capture]
        ends = truth.log_ends(capture.name)
        copied = [damage["node"] for damage in truth.damage_before(capture.name) if damage["label"] in COPIES]
        if any(ends.get(node, -1) >= audited_round.interval.low for node in copied):
            yield capture.name


def _left_no_trace(truth: Truth, audited: Audited) -> bool:
    """Whether no captures show both what was committed first and what stands in its place since.

    So it is where the only voter's disk lost its tail between captures: its log looks as if it had never been longer.
    Or as if it had been cut nowhere, where it was cleaned up beyond that before it was captured again.
    """
    overwritten = [
        line["start_offset"]
        for line in truth.lines["elected"]
        if (epoch := truth.committed_epoch(line["start_offset"])) is not None and epoch < line["epoch"]
    ]
    return bool(overwritten) and not any(_is_seen(truth, audited, lost) for lost in overwritten)


def _is_seen(truth: Truth, audited: Audited, lost: int) -> bool:
    """Whether captures hold the committed record at an offset, in a log or a snapshot, and another one in a log."""
    epoch = truth.committed_epoch(lost)
    held = {epoch.epoch for epoch in audited.survey.epochs if epoch.from_offset <= lost < epoch.to_offset}
    later = [snapshot for snapshot in audited.survey.snapshots if snapshot.end_offset > lost]
    is_held = epoch in held or any(
        snapshot.epoch == truth.committed_epoch(snapshot.end_offset - 1) for snapshot in later
    )
    return is_held and bool(held - {epoch})


def _says_damage(audited: Audited) -> bool:
    findings = check(audited.history, only=DAMAGE_RULES)
    return any(finding.status in (Status.RAISED, Status.UNDECIDED) for finding in findings)
