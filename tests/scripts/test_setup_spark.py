"""Which Java is taken, on machines that hold another one, a trimmed one or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import setup_spark


def make_java(home: Path, version: str, modules: str = "jdk.incubator.vector@17") -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
case "$1" in
  -version) echo 'openjdk version "{version}" 2025-04-15' >&2 ;;
  --list-modules) echo 'java.base@17'; echo '{modules}' ;;
esac
"""
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setattr(setup_spark, "JAVA", tmp_path / "fetched")
    return tmp_path


def test_java_home_comes_before_the_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(machine / "path", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(make_java(machine / "declared", "21.0.1")))
    assert setup_spark.usable_java_home() == machine / "declared"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20", "25"])
def test_a_java_that_spark_does_not_run_on_is_passed_over(
    machine: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    make_java(machine / "path", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(make_java(machine / "declared", version)))
    assert setup_spark.usable_java_home() == machine / "path"


def test_a_runtime_without_the_module_that_spark_adds_is_passed_over(machine: Path) -> None:
    make_java(machine / "path", "17.0.15", modules="")
    assert setup_spark.usable_java_home() is None


def test_a_fetched_jdk_is_found_again(machine: Path) -> None:
    make_java(machine / "fetched" / "home", "17.0.15")
    assert setup_spark.usable_java_home() == machine / "fetched" / "home"


def test_without_any_java_one_line_says_what_to_install(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object, **_options: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr("jdk.install", refuse)
    assert setup_spark.main() == 1
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1
    assert "Java 17 or 21" in reported
    assert "no network" in reported
    assert "openjdk-17-jdk-headless" in reported
