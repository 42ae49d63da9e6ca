"""A commit file of which only a part reached the disk, as a power cut leaves it: mended, or reported with its path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.pipeline import Step
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.errors import InputError

CLUSTERS = ("divergence", "torn-write")
CUTS: dict[str, Callable[[bytes], int]] = {
    "empty": lambda _: 0,
    "a brace": lambda _: 1,
    "a whole line": lambda whole: whole.index(b"\n") + 1,
    "half": lambda whole: len(whole) // 2,
    "all but a few bytes": lambda whole: len(whole) - 3,
}
STEPS = {"open": (Step.PLAN, Step.STAGE, Step.COMMIT), "closed": (Step.PLAN, Step.STAGE, Step.COMMIT, Step.CLOSE)}
Made = Callable[[str], FleetSettings]


@pytest.fixture
def made(
    small_corpus: Path, tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType,
    copy_aged: Callable[[Path, Path], None],
) -> Made:  # fmt: skip
    """A lake whose plan is open, all of it committed, or closed."""
    for name in CLUSTERS:
        copy_aged(small_corpus / name, tmp_path / "logs" / name)

    def make(plan: str) -> FleetSettings:
        fleet = make_fleet({name: [tmp_path / "logs" / name] for name in CLUSTERS}, lake=plan)
        for step in STEPS[plan]:
            without_spark.run(fleet, only=step)
        return fleet

    return make


def refusal(work: Callable[[], object]) -> str | None:
    """The line of a refused input; None where the work was done."""
    try:
        work()
    except InputError as problem:
        return str(problem)
    return None


@pytest.mark.ci
@pytest.mark.parametrize("plan", STEPS)
def test_a_commit_that_was_cut_off(
    plan: str, made: Made, without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    sound = made(plan)
    whole = made("closed") if plan == "open" else sound
    expected, reported = lake_hash(whole.lake), 0
    for table in ("plans", "records", "files"):
        for cut, length in CUTS.items():
            fleet = sound.model_copy(update={"lake": str(tmp_path / "torn")})
            shutil.copytree(sound.lake, fleet.lake)
            torn = max(Path(fleet.lake, table, "_delta_log").glob("*.json"))
            torn.write_bytes(torn.read_bytes()[: length(torn.read_bytes())])
            if (why := refusal(partial(without_spark.run, fleet))) is not None:
                reported += 1
                assert str(torn) in why, "which file it is"
                assert "not the whole of a commit" in why
                assert "\n" not in why
                torn.rename(tmp_path / "away")
                without_spark.run(fleet)
            assert lake_hash(fleet.lake) == expected, (table, cut)
            shutil.rmtree(fleet.lake)
    assert reported, "what is no JSON cannot be mended unseen"


@pytest.mark.ci
def test_a_closed_plan_that_a_table_lost_is_reported(made: Made, without_spark: ModuleType) -> None:
    fleet = made("closed")
    max(Path(fleet.lake, "records", "_delta_log").glob("*.json")).write_bytes(b"")
    lines: list[str] = []
    without_spark.run(fleet, lines=lines)
    (reported,) = [line for line in lines if "lost" in line]
    assert reported == "commit   plan 1 was lost from records, and is committed again"
    again: list[str] = []
    without_spark.run(fleet, lines=again)
    assert not [line for line in again if "lost" in line]
