"""What GitHub and pre-commit read: it runs what the Makefile has, names no registry, and asks for what helps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = (*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml")


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (lines,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    return [line.removeprefix("\t@") for line in lines.splitlines()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_registry_is_named(file: Path) -> None:
    assert read(file)
    assert not re.search(r"https?://|[a-z0-9-]+\.(?:org|com|io|dev)\b", file.read_text(encoding="utf-8"))


def test_workflows_run_what_is_there() -> None:
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in read(file)["jobs"].values():
            assert job["timeout-minutes"] <= 90
            for step in job["steps"]:
                command = step.get("run", "")
                if command.startswith("make "):
                    assert recipe(command.split()[1])
                elif command.startswith("."):
                    assert (ROOT / command).is_file()


def test_a_release_attaches_what_make_dist_builds() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert len(recipe("dist")) == 3
    for name in ("kraft_audit-*.whl", "kraft-audit.pyz", "kraft-capture", "kraft_audit.cdx.json"):
        assert text.count(f"dist/{name}") >= 1
        assert re.search(rf"sha256sum .*{re.escape(name)}", text)


def test_pre_commit_runs_the_fast_half_of_make_check() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook["entry"].removeprefix(".venv/bin/") for hook in repository["hooks"]]
    checks = [line.removeprefix("$(RUN)/") for line in recipe("check")]
    assert hooks == [line for line in checks if not line.startswith("$(PYTEST)")]


def test_issue_forms_ask_for_doctor_and_an_evidence_pack() -> None:
    for name in ("bug.yml", "wrong-answer.yml"):
        text = (ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text(encoding="utf-8")
        assert "`kraft-audit doctor`" in text
        assert "`kraft-audit evidence PATH --out pack.zip`" in text
