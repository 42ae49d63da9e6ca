"""A path that cannot be looked at is its cluster's failure: its other paths and the other clusters are planned."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.fleet_plan import plan_fleet
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.errors import InputError
from kraft_codec.storage.path_patterns import matching_paths
from tests.builders.node_dirs import as_somebody_else


def test_a_pattern_that_cannot_be_looked_at_fails_alone(
    small_corpus: Path, tmp_path: Path, make_fleet: Callable[..., FleetSettings]
) -> None:
    """A name longer than any file's, of which the system says so where a missing one is just not there."""
    long = tmp_path / ("n" * 300 + "*")
    fleet = make_fleet(
        {"long": [long], "good": [small_corpus / "mini-4.4.0"], "both": [long, small_corpus / "mini-3.9.2"]}
    )
    ledger = Ledger(DeltaLake(fleet.lake))
    ledger.create()
    plan = plan_fleet(fleet, ledger, 1)
    assert [cluster.plan.name for cluster in plan.clusters] == ["good", "both"]
    assert plan.failed == dict.fromkeys(("long", "both"), f"{long}: file name too long")


@pytest.mark.parametrize(("mode", "pattern"), [(0, "*"), (0, "node*/n?"), (0o444, "n*")])
def test_a_pattern_below_a_closed_folder_is_reported_with_its_reason(tmp_path: Path, mode: int, pattern: str) -> None:
    """One that may be listed and not entered, too. Where the tests run as root, the folder above is closed already."""
    folder = tmp_path / "closed"
    (folder / "node").mkdir(parents=True)
    folder.chmod(mode)
    try:
        with as_somebody_else():
            if os.geteuid() == 0:
                pytest.skip("root may look into any folder")
            with pytest.raises(InputError, match="permission denied"):
                matching_paths(str(folder / pattern))
    finally:
        folder.chmod(0o755)
