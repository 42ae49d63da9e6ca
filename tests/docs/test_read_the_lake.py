"""The page on reading a lake without Spark: its code runs, in order, on a lake of the samples."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.builders.commands import COMMAND

PAGE = Path("docs/read-the-lake.md")
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


def test_every_example_runs(
    project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fleet.yaml").write_text(
        f"lake: .demo/lake\nclusters:\n  - name: divergence\n    paths: [{project_root}/samples/divergence.tgz]\n"
    )
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("run", "fleet.yaml", "--engine", "local"),
        ("lake", "register", ".demo/lake", "--catalog", "duckdb", "--out", "catalog"),
    ):
        subprocess.run([str(COMMAND), *arguments], check=True, timeout=280, capture_output=True)
    examples = CODE.findall((project_root / PAGE).read_text("utf-8"))
    assert len(examples) == 3
    names: dict[str, object] = {}
    for number, example in enumerate(examples):
        exec(compile(example, f"{PAGE}, example {number}", "exec"), names)  # noqa: S102  # our own page
    printed = capsys.readouterr().out
    assert "critical" in printed, "a record that was acknowledged is on no canonical log"
    assert "divergence" in printed
    batches = names["batches"]
    assert len(batches) > 0  # type: ignore[arg-type]
