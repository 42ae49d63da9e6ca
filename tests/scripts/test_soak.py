"""The soak's figures go where they belong; a part gets its share, and one that cannot run gives it to the others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import soak, soak_parts
from scripts.mutants import changes, files, mutant
from scripts.soak_parts import PARTS, Done, Part, SkippedError


def quick(seed: int, _: float) -> Done:
    return Done(10, (f"{seed} is odd",) if seed % 2 else ())


def missing(_: int, __: float) -> Done:
    raise SkippedError("what it needs is not here")


@pytest.mark.slow
def test_parts_run_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"quick": Part(1, "cases", quick), "once": Part(1, "cases", quick, jobs_max=1), "no": Part(9, "", missing)}
    monkeypatch.setattr(soak, "PARTS", few)
    said: list[str] = []
    rows = soak.soak(2, 4, said.append, soak.chosen_parts())
    assert rows["quick"].seeds > 1
    assert rows["quick"].cases == 10 * rows["quick"].seeds
    assert (rows["once"].seeds, rows["no"].skipped) == (1, "what it needs is not here")
    assert "quick, seed 5: 5 is odd" in said, "whichever of the two processes is done first"
    assert "not run: what it needs is not here" in soak.table(rows)


@pytest.mark.slow
def test_parts_that_are_asked_for_end_when_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "PARTS", {"quick": Part(1, "cases", quick), "quiet": Part(9, "cases", missing)})
    said: list[str] = []
    rows = soak.soak(3_600, 4, said.append, soak.chosen_parts("quick", 4))
    assert {name: (row.seeds, row.cases) for name, row in rows.items()} == {"quick": (4, 40)}
    assert sorted(said) == ["quick, seed 5: 5 is odd", "quick, seed 7: 7 is odd"]


def test_a_part_is_chosen_by_what_its_name_holds() -> None:
    assert list(soak.chosen_parts("all captures", 500)) == ["hours, beside all captures"]
    assert soak.chosen_parts("Kafka itself", 9)["read and started by Kafka itself"].jobs_max == 1
    with pytest.raises(ValueError, match=r"no part's name holds 'weeks': .*; hours, beside all captures; "):
        soak.chosen_parts("weeks")


def test_a_mutant_that_lives_is_reported_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    said_by_mutants = "killed   a.py:1: a  →  b\nSURVIVED a.py:2: c  →  d\n1 of 2 mutants killed (0 …), seed 7\n"
    monkeypatch.setattr(
        soak_parts.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, said_by_mutants, "")
    )
    mutants = PARTS["mutants of decoder, replay, rules"]
    assert mutants.work(7, 1.0) == Done(2, remarks=("a.py:2: c  →  d",))
    rows = {"mutants": soak.Row(mutants, 1, 2, 1.0, remarks=["a.py:2: c  →  d"])}
    assert "| 2 mutants, 1 to look at | 1 | 0 |" in soak.table(rows)


def test_mutants_whose_tests_fail_without_a_change_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "the tests fail where nothing is changed, tests/x.py\n"
    monkeypatch.setattr(soak_parts.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 2, said, ""))
    assert PARTS["mutants of decoder, replay, rules"].work(7, 1.0) == Done(0, (said,))


def test_the_page_keeps_the_last_figures(project_root: Path) -> None:
    page = (project_root / "docs" / "reliability.md").read_text(encoding="utf-8")
    once = soak.keep(page, "the figures before")
    assert soak.keep(once, "the figures now") == soak.keep(page, "the figures now")
    assert "the figures now" in soak.keep(once, "the figures now")
    assert "the figures before" not in soak.keep(once, "the figures now")
    assert once.partition(soak.BEGIN)[0] == page.partition(soak.BEGIN)[0]
    assert once.partition(soak.END)[2] == page.partition(soak.END)[2]


def test_every_part_has_a_share() -> None:
    assert all(part.weight > 0 and part.unit for part in PARTS.values())


def test_mutants_are_python_and_differ_in_one_line(project_root: Path) -> None:
    assert {
        "kraft_codec/records/batch.py",
        "kraft_audit/quorum/voter_history.py",
        "kraft_audit/rules/families/voter_set.py",
    } <= set(files())
    source = (project_root / "kraft_codec/records/varint.py").read_text(encoding="utf-8").splitlines()
    made = [changed for change in changes("kraft_codec/records/varint.py") if (changed := mutant(change)) is not None]
    assert len(made) > 20
    for changed in made:
        differing = [pair for pair in zip(source, changed.source.splitlines(), strict=True) if pair[0] != pair[1]]
        assert differing == [(changed.before, changed.after)]
