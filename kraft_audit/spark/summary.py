"""What a run did, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

SEVERITIES: Final = ("critical", "high", "medium", "low")
EXIT_FINE: Final = 0
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 3


@dataclass(frozen=True, slots=True)
class FindingCounts:
    """What the table `findings` holds: open ones by severity, and those that do not count."""

    open: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SEVERITIES, 0))
    waived: int = 0
    expired: int = 0
    undecided: int = 0


@dataclass(slots=True)
class RunResult:
    """What a run did, as its summary tells: sums over the plans that it finished."""

    lake: str
    plans: list[int] = field(default_factory=list)
    clusters: int = 0
    unchanged: int = 0
    replicas: int = 0
    captures: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    findings: FindingCounts | None = None
    unreachable: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> dict[str, str]:
        """Why of each cluster: a path of it could not be reached, or the last plan that tried could not read it."""
        names = {**self.unreachable, **self.unread}
        told = ((self.unreachable.get(name), self.unread.get(name)) for name in names)
        return {name: "; ".join(dict.fromkeys(filter(None, why))) for name, why in zip(names, told, strict=True)}

    @property
    def exit_code(self) -> int:
        return EXIT_UNREADABLE if self.failed else EXIT_FINE

    def add_plan(self, number: int, summary: Mapping[str, Any], clusters: Iterable[str]) -> None:
        """Add what one plan did; `clusters` names all that it tried to read."""
        self.plans.append(number)
        self.clusters += summary["clusters"]
        self.replicas += summary["replicas"]
        self.captures += summary["captures"]
        self.rows.update(summary["rows"])
        self.records.update(summary["records"])
        self.damage.update(summary["damage"])
        for name in clusters:
            self.unread.pop(name, None)
        self.unread.update(summary["failed"])

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON holds it."""
        values = {
            one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("unreachable", "unread")
        }
        values["failed"] = self.failed
        values["findings"] = None if self.findings is None else asdict(self.findings)
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}


def findings_line(counts: FindingCounts) -> str:
    """Open findings by severity, and those that do not count, on one line."""
    others = (("waived", counts.waived), ("with an expired waiver", counts.expired), ("undecided", counts.undecided))
    told = [f"{sum(counts.open.values())} open", *(f"{count} {what}" for what, count in others if count)]
    return ", ".join(told)


def summary_text(result: RunResult) -> str:
    """The end of a run for people: what was read, what was wrong, how long it took."""
    plans = ", ".join(str(number) for number in result.plans) or "none"
    lines = [
        f"lake       {result.lake}   plan {plans}",
        f"clusters   {result.clusters} read, {result.unchanged} unchanged, {len(result.failed)} failed",
        f"replicas   {result.replicas} in {result.captures} captures",
        f"batches    {result.rows['batches']}",
        f"records    {result.rows['records']}",
    ]
    lines += [f"  {count:>9}  {name}" for name, count in result.records.most_common()]
    lines.append(f"damage     {sum(result.damage.values())}")
    lines += [f"  {count:>9}  {name}" for name, count in result.damage.most_common()]
    if result.findings is not None:
        lines.append(f"findings   {findings_line(result.findings)}")
        lines += [f"  {count:>9}  {severity}" for severity, count in result.findings.open.items()]
    lines.append("seconds    " + ", ".join(f"{step} {seconds:.1f}" for step, seconds in result.seconds.items()))
    lines += [f"failed     {name}: {why}" for name, why in result.failed.items()]
    return "\n".join(lines) + "\n"
