"""What `run --then` does in the process of the run: the gate before findings are merged, pages and messages after."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from kraft_audit.commands.arguments import need_packages
from kraft_audit.commands.ending import UsageError
from kraft_audit.text.readable import plural

if TYPE_CHECKING:
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.notices.notify_settings import NotifySettings, Target
    from kraft_audit.lake.progress import Progress, RunResult

QUALITY, MERGE, REPORT, NOTIFY = STEPS = ("quality", "findings", "report", "notify")
QUALITY_PACKAGES: Final = ("great_expectations", "duckdb_engine")


@dataclass(frozen=True, slots=True)
class Following:
    """The steps after a plan is closed, in order. `out` is where pages go; `notices` is whom messages go to."""

    steps: tuple[str, ...] = ()
    out: Path | None = None
    notices: tuple[NotifySettings, dict[str, Target]] | None = None

    @classmethod
    def of(cls, then: str, out: Path | None, config: Path | None) -> Self:
        """From the words of the command line. Raises UsageError."""
        steps = tuple(then.split(","))
        expected = f"some of {','.join(STEPS)}, in this order"
        if [step for step in STEPS if step in steps] != list(steps):
            raise UsageError(f"'--then': {then!r}: expected {expected}")
        for step, option, given in ((REPORT, "--out DIR", out), (NOTIFY, "--config FILE", config)):
            if (step in steps) != (given is not None):
                raise UsageError(f"--then {step} and {option} need each other")
        if QUALITY in steps:
            need_packages("run --then quality", QUALITY_PACKAGES, "lake,quality")
        if REPORT in steps and find_spec("jinja2") is None:
            raise UsageError("run --then report needs jinja2: pip install jinja2")
        return cls(steps, out, None if config is None else _notices(config))

    @property
    def has_findings(self) -> bool:
        """Whether findings are merged after the gate."""
        return MERGE in self.steps

    def gate(self, lake: DeltaLake, result: RunResult, progress: Progress) -> Callable[[], bool] | None:
        """Judges what is new in the lake, and says whether findings may be merged; None if nobody asked for it."""
        if QUALITY not in self.steps:
            return None

        def judged() -> bool:
            from kraft_audit.lake.progress import ProgressLine
            from kraft_audit.lake.quality.quality_gate import judge_lake

            started = time.monotonic()
            gate = judge_lake(lake, only_new=True)
            for verdict in gate.verdicts:
                if not verdict.passed:
                    what = f"{verdict.severity}: {verdict.table}.{verdict.clause}: {', '.join(verdict.clusters)}"
                    is_critical = verdict.severity == "critical"
                    progress(ProgressLine(QUALITY, what, level="error" if is_critical else "warning"))
                    result.broken += [f"{verdict.table}.{verdict.clause}"] if is_critical else []
            kept = sum(verdict.passed for verdict in gate.verdicts)
            _show(QUALITY, f"{kept} of {plural(len(gate.verdicts), 'promise')} hold", started, result, progress)
            return gate.is_open

        return judged

    def publish(self, lake: DeltaLake, result: RunResult, progress: Progress) -> None:
        """Make the pages and send the messages that were asked for."""
        if self.out is not None:
            from kraft_audit.report.lake_source import LakeSource
            from kraft_audit.report.site import write_site

            started = time.monotonic()
            site = write_site(LakeSource(lake, has_pages=True), self.out)
            result.pages = str(site.index)
            _show(REPORT, f"{site.index}: {plural(site.clusters, 'cluster')}", started, result, progress)
        if self.notices is None:
            return
        from kraft_audit.lake.notices.notifying import Notifier, summary_line

        started = time.monotonic()
        sent = Notifier(lake, *self.notices).notify()
        _show(NOTIFY, summary_line(sent), started, result, progress)
        result.unsent = sum(message.stage == "failed" for message in sent)


NOTHING_FOLLOWS: Final = Following()


def _notices(config: Path) -> tuple[NotifySettings, dict[str, Target]]:
    from kraft_audit.lake.notices.notify_settings import load_notify
    from kraft_audit.lake.settings import SettingsError

    try:
        settings, targets = load_notify(config)
    except SettingsError as problem:
        raise UsageError(str(problem)) from None
    return settings, dict(targets)


def _show(step: str, what: str, started: float, result: RunResult, progress: Progress) -> None:
    from kraft_audit.lake.progress import ProgressLine

    seconds = time.monotonic() - started
    result.seconds[step] = round(seconds, 3)
    progress(ProgressLine(step, what, seconds=seconds))
