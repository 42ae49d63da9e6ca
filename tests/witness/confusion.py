"""What a random run's truth says of each rule that it can decide, beside what the rule says: right, false, missed."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Status
from tests.builders.captured_histories import shared_ids
from tests.witness.audited import FAST_FOLDER, Audited
from tests.witness.comparison import is_captured
from tests.witness.expected import AT_END, EVER, expected_of
from tests.witness.expected_disks import RULES as OF_DISKS
from tests.witness.expected_disks import expected_of_disks, torn_tails
from tests.witness.losses_truth import reported_losses
from tests.witness.played import Played, play
from tests.witness.truth import Truth

NEVER_WITHIN_MODEL = (
    *("KV001", "KV002", "KV003", "KV004", "KV009", "KV010", "KV012", "KV017", "KV018"),
    *("KV601", "KV602", "KV801", "KV802", "KV803"),
    *("KQ002", "KQ003", "KQ004", "KQ005", "KQ006", "KQ007", "KQ008", "KQ010", "KQ011", "KQ012", "KQ013", "KQ014"),
    *(
        "KQ015",
        "KQ018",
        "KQ019",
        "KQ020",
        "KQ021",
        "KQ022",
        "KQ024",
        "KQ025",
        "KP013",
        "KP015",
        "KP016",
        "KP017",
        "KP019",
        "KB002",
        "KB006",
        "KB007",
        "KB009",
    ),
)
"""Damage and neglect that no run within the model can do in its few minutes: each of these raised is a false alarm."""
AT_PROVEN_END = ("KQ017",)
"""Raised by what is open where the proof of the last captures ends."""
AT_LOG_ENDS = ("KQ009",)
"""Raised by what lies after the last whole batch of a log, whatever of it was ever committed."""
AT_VOTERS = ("KV007", "KV011", "KV015")
"""Raised by the history of the committed voter sets."""
OF_LOSSES = ("KP020",)
"""Raised by elections that pass over who surely holds what was acknowledged."""
DECIDED = (*EVER, *AT_END, *OF_LOSSES, *AT_PROVEN_END, *AT_LOG_ENDS, *AT_VOTERS, *OF_DISKS, *NEVER_WITHIN_MODEL)


@dataclass
class Confusion:
    """By rule: how many subjects were raised rightly or falsely, or missed; `clear` counts runs with none of them."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)


def confusion_of(scenario: str, seed: int) -> Confusion:
    """Plays one seed within the model and compares every decided rule's subjects with the truth's."""
    with tempfile.TemporaryDirectory(prefix="kraft-witness-", dir=FAST_FOLDER) as folder:
        return judge(play(scenario, seed, Path(folder) / "run"))


def judge(played: Played) -> Confusion:
    """What the rules say of a run's captures, beside its truth."""
    truth, audited = played.truth, played.audited
    reached, committed_end = audited.canonical_end, played.committed_end
    judged = list(check(played.history, only=DECIDED))
    assert not shared_ids(judged), "two findings share an id"
    findings = [
        finding
        for finding in judged
        if finding.from_offset is None or finding.from_offset < committed_end or finding.rule in AT_LOG_ENDS
    ]
    wanted_names = _wanted(truth, audited.replay_start, min(reached, committed_end))
    # Epochs that only logs of earlier captures hold were starts all the same.
    earlier = expected_of(truth, from_offset=0, to_offset=min(reached, committed_end))
    wanted_names["KV015"] = set(_rejoined(truth, audited, min(reached, committed_end)))
    if _is_transaction_open(truth, min(_proven_end(audited) or reached, committed_end)):
        wanted_names["KQ017"] = {"metadata transaction"}
    wanted_names["KQ009"] = set(torn_tails(truth))
    of_disks = expected_of_disks(truth, log_start=audited.log_start, reached=reached, judged_to=committed_end)
    wanted_names.update({rule: set(outcome.must) for rule, outcome in of_disks.items()})
    wanted_names["KP020"], maybe_lost = reported_losses(played)
    result = Confusion()
    for rule in DECIDED:
        if rule in (*AT_VOTERS, *OF_DISKS) and (reached > committed_end or not reached):
            continue  # the last set may never have been committed, the first never been seen
        raised = {
            _plain(finding.subject) for finding in findings if finding.rule == rule and finding.status is Status.RAISED
        }
        wanted = wanted_names.get(rule, set())
        allowed = wanted if rule not in OF_DISKS else of_disks[rule].may
        if rule == "KB011":
            allowed = wanted | earlier[rule]
        if rule == "KP016":
            allowed = wanted | _in_split_operations(truth)
        if rule == "KP020":
            allowed = maybe_lost
        if rule == "KP008":
            allowed = wanted | _removed_just_before(truth)
        counts = {"right": raised & allowed, "false": raised - allowed, "missed": wanted - raised}
        result.counts[rule] = Counter({kind: len(subjects) for kind, subjects in counts.items()})
        result.counts[rule]["clear"] += not raised and not wanted
        for kind in ("false", "missed"):
            result.disagreements += [f"{rule} {kind}: {count}" for count in sorted(counts[kind])]
    return result


def _in_split_operations(truth: Truth) -> set[str]:
    """Partitions from whose ISR the operation that shut a broker down took it in a later batch.

    Some runs split operations after five records, Kafka after ten thousand. Where a batch is not full by Kafka's
    measure nothing says that the next one belongs to its operation: for that moment the broker was away and listed.
    """
    shutdowns = {
        line["operation"]: line["batch"]
        for line in truth.lines["metadata"]
        if line["type"] == "BrokerRegistrationChangeRecord" and (line.get("fields") or {}).get("inControlledShutdown")
    }
    return {
        f"{change['topic']}-{change['partition']}"
        for change in truth.lines["partition"]
        if change["batch"] != shutdowns.get(change["operation"], change["batch"])
    }


def _removed_just_before(truth: Truth) -> set[str]:
    """Brokers that crashed and came back, where leaders had removed them in the batch of their registration.

    They came back uncleanly, and nothing was left to take from them. The log does not tell whose removals those were.
    """
    crashed_ms = defaultdict[int, list[int]](list)
    for line in truth.lines["broker_crash"]:
        crashed_ms[line["broker"]].append(line["time_ms"])
    removed: set[tuple[int, int]] = set()
    isr: dict[tuple[str, int], set[int]] = {}
    for line in sorted(truth.lines["partition"], key=itemgetter("offset")):
        subject = line["topic_id"], line["partition"]
        removed |= {(broker, line["batch"]) for broker in isr.get(subject, set()) - set(line["isr"])}
        isr[subject] = set(line["isr"])
    found, known_ms = set[str](), dict[int, int]()
    for line in truth.lines["metadata"]:
        if line["type"] == "RegisterBrokerRecord":
            broker, came_ms = line["fields"]["brokerId"], line["append_ms"]
            is_unclean = any(known_ms.get(broker, 0) < at <= came_ms for at in crashed_ms[broker])
            found |= {f"broker {broker}"} if is_unclean and (broker, line["batch"]) in removed else set()
            known_ms[broker] = came_ms
    return found


def _plain(subject: str) -> str:
    """A subject without the number that distinguishes two episodes of one beginning."""
    return subject.split(" #")[0]


def add_up(found: Iterable[Confusion]) -> dict[str, Counter[str]]:
    """The counts of many runs, by rule."""
    sums: dict[str, Counter[str]] = {rule: Counter() for rule in DECIDED}
    for comparison in found:
        for rule, counts in comparison.counts.items():
            sums[rule].update(counts)
    return sums


def confusion_table(sums: dict[str, Counter[str]]) -> str:
    """One line a rule: its subjects raised rightly and falsely, missed, and the runs that have none."""
    kinds = ("right", "clear", "false", "missed")
    lines = [f"{'rule':8}" + "".join(f"{kind:>8}" for kind in kinds) + f"{'precision':>11}{'recall':>8}"]
    for rule, counts in sorted(sums.items()):
        shown = "".join(f"{counts[kind]:>8}" for kind in kinds)
        lines.append(f"{rule:8}{shown}{_share(counts, 'false'):>11}{_share(counts, 'missed'):>8}")
    return "\n".join(lines)


def _share(counts: Counter[str], wrong: str) -> str:
    whole = counts["right"] + counts[wrong]
    return f"{counts['right'] / whole:.4f}" if whole else "-"


def _wanted(truth: Truth, start: int, reached: int) -> dict[str, set[str]]:
    """Subjects by rule as the truth has them, as far as a log was captured without a gap up to where it ends."""
    names = expected_of(truth, from_offset=start, to_offset=reached)
    sets = [(offset, voters) for offset, voters in truth.committed_voters() if offset < reached]
    elected = [line["voters"] for line in truth.lines["elected"]]
    count = len(sets[-1][1] if sets else elected[-1]) if sets or elected else 3
    names["KV007"] = {"voters"} if count < 3 or count % 2 == 0 else set()
    is_dynamic = any(line["offset"] < reached and line["version"] > 0 for line in truth.lines["kraft_version"])
    names["KV011"] = set() if is_dynamic or truth.run["dialect"] != "kip853" else {"voters"}
    return names


def _proven_end(audited: Audited) -> int:
    """What the last captures prove committed, 0 where they prove nothing."""
    return max(
        ((audited_round.number, audited_round.interval.low) for audited_round in audited.rounds), default=(0, 0)
    )[1]


def _is_transaction_open(truth: Truth, to_offset: int) -> bool:
    """Whether the last metadata transaction begun below an offset had neither ended nor been aborted there."""
    markers = [
        (line["offset"], line["type"])
        for line in truth.lines["metadata"]
        if line["type"].endswith("TransactionRecord") and line["offset"] < to_offset
    ]
    return bool(markers) and max(markers)[1].startswith("Begin")


def _rejoined(truth: Truth, audited: Audited, reached: int) -> Iterator[str]:
    """Captured changes that add a voter again which an earlier one removed; a bare id does not tell its disks apart."""
    sets = [(offset, voters) for offset, voters in truth.committed_voters() if offset < reached]
    removed: set[tuple[int, str | None]] = set()
    for (_, before), (offset, after) in pairwise(sets):
        if offset >= 0 and not is_captured(truth, audited, offset):
            continue
        if any(key in removed and key[1] is not None for key in set(after) - set(before)):
            yield f"voter set at offset {offset}"
        removed |= set(before) - set(after)
