"""One incident, one wording: in the terminal, on the page of a lake, in the notebook and in what people are sent."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from kraft_audit.commands.cli import run_command
from tests.builders.lakes import write_fleet
from tests.builders.notified_lakes import listener

pytestmark = pytest.mark.slow


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_an_incident_is_said_in_the_same_words_everywhere(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("nbclient")
    from scripts.run_notebook import execute

    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    path, fleet = samples / "elr-06-kill-13-last-replica.tgz", tmp_path / "fleet.yaml"
    lake = write_fleet(tmp_path, {"elr": [path]}).lake
    assert run_command(["check", "--incidents", str(path), "--output", "json", "--fail-on", "never"]) == 0
    open_now = [row for row in json.loads(capsys.readouterr().out) if row["is_open"]]
    assert open_now
    run_command(["check", str(path)])
    printed = plain(capsys.readouterr().out)

    assert run_command(["run", str(fleet), "--engine", "local"]) == 0
    assert run_command(["report", lake, "--out", str(tmp_path / "site")]) == 0
    (page,) = (tmp_path / "site" / "clusters").glob("*.html")
    assert execute(Path("notebooks/incident_timeline.py").resolve(), tmp_path, {"PATH": str(path)})
    with listener() as hook:
        settings = tmp_path / "notify.yaml"
        told = {"targets": {"hook": {"webhook": hook.url}}, "routes": [{"to": ["hook"]}]}
        settings.write_text(yaml.safe_dump({**told, "report_url": "https://audit.example"}))
        assert run_command(["notify", lake, "--config", str(settings)]) == 0
        sent = [body["headline"] for body in hook.bodies]
        links = [body["link"].removeprefix("https://audit.example/").split("#") for body in hook.bodies]
    for file, anchor in links:
        assert f'id="{anchor}"' in (tmp_path / "site" / file).read_text()
    for row in open_now:
        assert plain(row["headline"]) in printed
        assert row["headline"] in page.read_text()
        assert row["headline"] in (tmp_path / "incident_timeline.html").read_text()
        assert row["headline"] in sent
