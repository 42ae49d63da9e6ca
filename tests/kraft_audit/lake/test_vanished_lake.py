"""A lake that is removed while a run goes on: the run fails, says why, and makes no new lake."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit.lake.pipeline import Run
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.errors import InputError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("step", ["_stage", "_commit", "_close"])
def test_a_lake_that_vanishes_in_mid_run(
    step: str,
    small_corpus: Path,
    make_fleet: Callable[..., FleetSettings],
    without_spark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = make_fleet({"kafka": [small_corpus / "mini-4.4.0"]})
    undisturbed = getattr(Run, step)

    def after_the_lake_is_gone(run: Run, *arguments: Any) -> Any:
        shutil.rmtree(fleet.lake)
        return undisturbed(run, *arguments)

    monkeypatch.setattr(Run, step, after_the_lake_is_gone)
    with pytest.raises(InputError, match="lake"):
        without_spark.run(fleet)
    assert not Path(fleet.lake).exists()
