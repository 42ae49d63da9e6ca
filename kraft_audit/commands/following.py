"""What `run --then` does in the process of the run: the gate before findings are merged, pages and messages after."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kraft_audit.commands.arguments import QUALITY_PACKAGES, need_jinja, need_packages
from kraft_audit.commands.ending import UsageError
from kraft_audit.text.readable import plural

if TYPE_CHECKING:
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.notices.notify_settings import NotifySettings, Target
    from kraft_audit.lake.pipeline import Gate, Run

QUALITY, MERGE, REPORT, NOTIFY = STEPS = ("quality", "findings", "report", "notify")


@dataclass(frozen=True, slots=True)
class Following:
    """The steps after a plan is closed, in order. `out` is where pages go; `notices` is whom messages go to."""

    steps: tuple[str, ...] = ()
    out: Path | None = None
    notices: tuple[NotifySettings, dict[str, Target]] | None = None

    @classmethod
    def of(cls, then: str | None, out: Path | None, config: Path | None) -> Self:
        """From the words of the command line. Raises UsageError."""
        if then is None and (out is not None or config is not None):
            raise UsageError("--out and --config need --then")
        steps = () if then is None else tuple(then.split(","))
        if [step for step in STEPS if step in steps] != list(steps):
            raise UsageError(f"'--then': {then!r}: expected some of {','.join(STEPS)}, in this order")
        for step, option, given in ((REPORT, "--out DIR", out), (NOTIFY, "--config FILE", config)):
            if (step in steps) != (given is not None):
                raise UsageError(f"--then {step} and {option} need each other")
        if QUALITY in steps:
            need_packages("run --then quality", QUALITY_PACKAGES, "lake,quality")
        if REPORT in steps:
            need_jinja("run --then report")
        return cls(steps, out, None if config is None else notices_of(config))

    @property
    def merges(self) -> bool:
        """Whether findings are merged: a run without further steps does so itself."""
        return not self.steps or MERGE in self.steps

    @property
    def gate(self) -> Gate | None:
        """What judges the new rows of a run's lake, and says whether findings may be merged; None if nobody asked."""
        return _is_open if QUALITY in self.steps else None

    def publish(self, run: Run, lake: DeltaLake) -> None:
        """Make the pages and send the messages that were asked for."""
        if self.out is not None:
            from kraft_audit.report.lake_source import LakeSource
            from kraft_audit.report.site import write_site

            started = time.monotonic()
            site = write_site(LakeSource(lake, has_pages=True), self.out)
            run.result.pages = str(site.index)
            run.show(REPORT, f"{site.index}: {plural(site.clusters, 'cluster')}", started)
        if self.notices is not None:
            from kraft_audit.lake.notices.notifying import Notifier, summary_line

            started = time.monotonic()
            sent = Notifier(lake, *self.notices).notify()
            run.result.unsent = sum(message.stage == "failed" for message in sent)
            run.show(NOTIFY, summary_line(sent), started)


def _is_open(run: Run) -> bool:
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.progress import ProgressLine
    from kraft_audit.lake.quality.quality_gate import judge_lake

    assert isinstance(run.lake, DeltaLake)  # noqa: S101  # steps follow no other one
    started = time.monotonic()
    gate = judge_lake(run.lake, only_new=True)
    for verdict in gate.verdicts:
        if not verdict.passed:
            what = f"{verdict.severity}: {verdict.table}.{verdict.clause}: {', '.join(verdict.clusters)}"
            level = "error" if verdict.severity == "critical" else "warning"
            run.progress(ProgressLine(QUALITY, what, level=level))
    run.result.broken = [f"{verdict.table}.{verdict.clause}" for verdict in gate.closing]
    kept = sum(verdict.passed for verdict in gate.verdicts)
    run.show(QUALITY, f"{kept} of {plural(len(gate.verdicts), 'promise')} hold", started)
    return gate.is_open


def notices_of(config: Path, *, with_secrets: bool = True) -> tuple[NotifySettings, dict[str, Target]]:
    """Whom a notify.yaml sends to. Raises UsageError, InputError."""
    from kraft_audit.lake.notices.notify_settings import load_notify
    from kraft_audit.lake.settings import SettingsError

    try:
        return load_notify(config, with_secrets=with_secrets)
    except SettingsError as problem:
        raise UsageError(str(problem)) from None
