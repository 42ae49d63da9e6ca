"""`doctor`: each thing that can be wrong is found, shown in a row, and has its remedy."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command


def checks(ended) -> dict[str, dict[str, str]]:
    return {row["what"]: row for row in json.loads(ended.out)}


def test_a_machine_that_runs_these_tests_can_decode(kraft_audit) -> None:
    found = checks(kraft_audit("doctor", "--output", "json"))
    assert found["pyarrow"]["status"] == "ok"
    assert found["numba"]["status"] == "ok"
    assert {"kernel cache", "Java", "Delta jars", "working folder", "temporary files", "redaction key"} <= set(found)
    assert all(row["remedy"] for row in found.values() if row["status"] != "ok")


def test_a_cache_that_others_may_write_to_is_named(kraft_audit, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("KRAFT_AUDIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o777)
    (tmp_path / "cache").chmod(0o777)
    row = checks(kraft_audit("doctor", "-o", "json"))["kernel cache"]
    assert row["status"] == "warn"
    assert str(tmp_path / "cache") in row["found"]
    assert "0777" in row["found"]


def test_no_java(kraft_audit, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    monkeypatch.setattr("kraft_audit.spark.session.shutil.which", lambda _: None)
    monkeypatch.setattr("kraft_audit.spark.session.project_folder", lambda: tmp_path)
    ended = kraft_audit("doctor", "-o", "json")
    row = checks(ended)["Java"]
    assert (ended.code, row["status"]) == (1, "fail")
    assert "17 or 21" in row["remedy"]


@pytest.mark.parametrize("before", [None, "/no/java"])
def test_the_environment_is_left_as_it_was(kraft_audit, monkeypatch, before: str | None) -> None:
    """Looking for Java names the one that was found in JAVA_HOME, as Spark takes it from there."""
    if before is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", before)
    environment = dict(os.environ)
    assert checks(kraft_audit("doctor", "-o", "json"))["Java"]["status"] == "ok"
    assert dict(os.environ) == environment


@pytest.mark.parametrize(("mode", "status"), [(0o600, "ok"), (0o644, "fail")])
def test_a_key_file(kraft_audit, tmp_path: Path, monkeypatch, mode: int, status: str) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("ab" * 32)
    key_file.chmod(mode)
    monkeypatch.setenv("KRAFT_AUDIT_REDACTION_KEY_FILE", str(key_file))
    ended = kraft_audit("doctor", "-o", "json")
    row = checks(ended)["redaction key"]
    assert (row["status"], str(key_file) in row["found"]) == (status, True)
    assert "abab" not in ended.out
    assert ended.code == (0 if status == "ok" else 1)


def test_paths(kraft_audit, small_corpus: Path, tmp_path: Path) -> None:
    good = small_corpus / "divergence"
    found = checks(kraft_audit("doctor", good, tmp_path, tmp_path / "missing", "-o", "json"))
    assert found[str(good)]["status"] == "ok"
    assert re.fullmatch("12 replicas, [0-9]+ files that are not Kafka's ignored", found[str(good)]["found"])
    assert found[str(tmp_path)]["status"] == "fail"
    assert found[str(tmp_path / "missing")]["status"] == "fail"


def test_without_the_spark_extra(kraft_audit, monkeypatch) -> None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    def version(name: str) -> str:
        if name in ("pyspark", "delta-spark", "deltalake"):
            raise PackageNotFoundError(name)
        return installed_version(name)

    monkeypatch.setattr("kraft_audit.commands.doctor.version", version)
    monkeypatch.setattr("kraft_audit.commands.doctor.find_spec", lambda _: None)
    ended = kraft_audit("doctor", "-o", "json")
    assert ended.code == 0
    assert checks(ended)["pyspark"]["remedy"] == "pip install 'kraft-audit[spark]'"


def test_a_lake(kraft_audit, small_corpus: Path, tmp_path: Path) -> None:
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.ledger import Ledger

    assert checks(kraft_audit("doctor", "-o", "json"))["Arrow for Spark"]["status"] == "ok"
    Ledger(DeltaLake(str(tmp_path))).create()
    row = checks(kraft_audit("doctor", tmp_path, "-o", "json"))[str(tmp_path)]
    assert (row["status"], row["found"]) == ("ok", "a lake, 0 plans closed")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(kraft_audit, shell: str) -> None:
    ended = kraft_audit("doctor", "--completion", shell)
    assert (ended.code, ended.err) == (0, "")
    assert "_KRAFT_AUDIT_COMPLETE" in ended.out


def test_a_shell_that_asks_is_answered() -> None:
    program = [sys.executable, "-c", "from kraft_audit.commands.cli import main; main()"]
    asked = {"_KRAFT_AUDIT_COMPLETE": "complete_bash", "COMP_WORDS": "kraft-audit time", "COMP_CWORD": "1"}
    ended = subprocess.run(program, env=os.environ | asked, capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == ["timeline"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rules KP00", {"KP001", "KP002"}),
        ("check --rule KQ02", {"KQ020", "KQ022"}),
        ("simulate last-rep", {"last-replica-standing"}),
        ("upgrade-check samples/divergence.tgz --to 4.", {"4.0", "4.4"}),
        ("quorum samples/divergence.tgz --capture 1", {"10-uncommitted-suffix-live", "12-after-truncation"}),
        ("rescue --plan samples/divergence.tgz --gone 1,", {"1,2", "1,3"}),
        ("may-i start 2 samples/divergence.tgz --stopped 1", {"1", "11"}),
        ("lake ta", {"tables"}),
        ("check /nowhere --capture x", set()),
        ("check --capture x", set()),
    ],
)
def test_values_are_completed_from_what_is_there(
    line: str, expected: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_KRAFT_AUDIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"kraft-audit {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
    with contextlib.suppress(SystemExit):
        run_command([])
    given = set(capsys.readouterr().out.split())
    assert given >= expected
    assert bool(given) is bool(expected)
    assert all(value.startswith(line.split()[-1]) for value in given)
