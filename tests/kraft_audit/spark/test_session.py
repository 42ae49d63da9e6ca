"""What a session needs is looked for before Spark starts, and reported in one line if it is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from kraft_audit.lake.settings import SettingsError
from kraft_audit.spark import session
from kraft_audit.spark.session import LOCAL, REQUIRED, is_conflict, jar_settings, java_settings, read_conf, use_java
from kraft_codec.errors import InputError


def java_home(folder: Path, release: str | None, output: str = "") -> Path:
    """A folder that looks like a Java: with a release file, or with a program that says `output`."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n[ $1 = -version ] && printf '%s' '{output}' >&2\n")
    java.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(release)
    return folder


def release(version: str, modules: str = "java.base jdk.incubator.vector") -> str:
    return f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n'


@pytest.mark.parametrize(
    ("text", "output", "wrong"),
    [
        (release("17.0.15"), "", None),
        (release("21.0.1"), "", None),
        (release("11.0.2"), "", "Java 11"),
        (release("25"), "", "Java 25"),
        (release("17.0.1", "java.base"), "", "lacks the module jdk.incubator.vector"),
        (None, 'openjdk version "17.0.15" jdk.incubator.vector', None),
        (None, "no such thing", "shows no version"),
    ],
)
def test_which_java_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, output: str, wrong: str | None
) -> None:
    home = java_home(tmp_path / "java", text, output)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(session.shutil, "which", lambda _: None)
    monkeypatch.setattr(session, "project_folder", lambda: tmp_path)
    if wrong is None:
        assert use_java() == home
        return
    with pytest.raises(SettingsError) as raised:
        use_java()
    assert f"{home} (JAVA_HOME): {wrong}" in str(raised.value)
    assert "install a JDK 17 or 21" in str(raised.value)


def test_the_fetched_java_serves_where_the_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "old", release("8"))))
    monkeypatch.setattr(session.shutil, "which", lambda _: None)
    monkeypatch.setattr(session, "project_folder", lambda: tmp_path)
    fetched = java_home(tmp_path / ".java" / "home", release("17.0.1"))
    assert use_java() == fetched


def test_jars_come_from_a_folder_or_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KRAFT_AUDIT_JARS", raising=False)
    monkeypatch.setattr(session, "project_folder", lambda: tmp_path)
    assert jar_settings() == {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"}
    (tmp_path / ".jars").mkdir()
    (tmp_path / ".jars" / "delta.jar").touch()
    assert jar_settings() == {"spark.jars": str(tmp_path / ".jars" / "delta.jar")}
    monkeypatch.setenv("KRAFT_AUDIT_JARS", str(tmp_path / "nowhere"))
    with pytest.raises(SettingsError, match=r"KRAFT_AUDIT_JARS: folder: '.*nowhere': expected a folder that holds"):
        jar_settings()


def test_a_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text("# comment\n\nspark.master   local[1]\nspark.app.name=a b\nspark.x = y\n")
    assert read_conf(file) == {"spark.master": "local[1]", "spark.app.name": "a b", "spark.x": "y"}
    file.write_text("spark.master local[1]\nmaster local\n")
    with pytest.raises(SettingsError, match=r"x\.conf: line 2: 'master local': expected a line such as"):
        read_conf(file)
    with pytest.raises(InputError, match="No such file or directory"):
        read_conf(tmp_path / "none.conf")


def test_a_brief_session_compiles_once() -> None:
    """A long one gets Java's own defaults; both log by our properties."""
    (long,) = java_settings().values()
    (brief,) = java_settings(is_brief=True).values()
    assert long.startswith("-Dlog4j2.configurationFile=file:")
    assert "-XX" not in long
    assert brief.split() == [long, "-XX:TieredStopAtLevel=1"]


def test_where_it_is_installed_is_one_word_to_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "__file__", '/opt/it\'s 1%20 "x"/session.py')
    (options,) = java_settings().values()
    assert shlex.split(options) == [options]
    reported = options.removeprefix("-Dlog4j2.configurationFile=")
    assert unquote(urlsplit(reported).path) == '/opt/it\'s 1%20 "x"/log4j2.properties'


@pytest.mark.ci
def test_spark_starts_from_a_folder_with_a_space(tmp_path: Path, project_root: Path) -> None:
    installed = tmp_path / "of our own"
    shutil.copytree(project_root / "kraft_audit", installed / "kraft_audit")
    (installed / "kraft_codec").symlink_to(project_root / "kraft_codec")
    (installed / "jars").symlink_to(project_root / ".jars")
    reported = "; ".join(
        (
            "from kraft_audit.spark.session import spark_session",
            "frame = spark_session('a test').range(3)",
            "frame.write.format('delta').save('table')",
            "print(frame.count())",
        )
    )
    more = {"PYTHONPATH": str(installed), "KRAFT_AUDIT_JARS": str(installed / "jars"), "KRAFT_AUDIT_SPARK_LOG": "-"}
    ended = subprocess.run(
        [sys.executable, "-c", reported],
        cwd=tmp_path,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["3"]), ended.stderr
    assert "Spark's default log4j profile" not in ended.stderr, "our own properties are read"


def test_the_local_profile_says_what_the_session_sets(project_root: Path) -> None:
    assert read_conf(project_root / "conf" / "spark" / "local.conf") == {**REQUIRED, **LOCAL}


def test_every_profile_is_readable_and_keeps_what_is_required(project_root: Path) -> None:
    profiles = sorted((project_root / "conf" / "spark").glob("*.conf"))
    assert [profile.stem for profile in profiles] == ["databricks", "k8s", "local", "standalone"]
    for profile in profiles:
        found = read_conf(profile)
        missing = {key for key, value in REQUIRED.items() if found.get(key) != value}
        built_in = (
            {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"} if profile.stem == "databricks" else set()
        )
        assert missing == built_in, profile.name


AUTHENTICATED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
}


@pytest.mark.parametrize("profile", ["k8s", "standalone"])
def test_a_profile_that_encrypts_protects_what_crosses_from_changes(profile: str, project_root: Path) -> None:
    """By default Spark's cipher is AES/CTR, without authentication (CVE-2025-55039)."""
    text = (project_root / "conf" / "spark" / f"{profile}.conf").read_text(encoding="utf-8")
    reported = dict(re.findall(r"^(?:# )?(spark\.(?:authenticate|network\.crypto\.\w+))\s+(\S+)$", text, re.MULTILINE))
    assert reported == AUTHENTICATED
    if profile == "k8s":
        assert read_conf(project_root / "conf" / "spark" / f"{profile}.conf").items() >= AUTHENTICATED.items()


def test_spark_knows_the_settings_that_encrypt() -> None:
    """The names, as Spark's own classes hold them: a setting that is misspelt is one that Spark never asks for."""
    jars = Path(importlib.util.find_spec("pyspark").origin).parent / "jars"
    (network,) = jars.glob("spark-network-common_*.jar")
    with zipfile.ZipFile(network) as classes:
        transport = classes.read("org/apache/spark/network/util/TransportConf.class")
        engine = classes.read("org/apache/spark/network/crypto/AuthEngine.class")
    for name in AUTHENTICATED.keys() - {"spark.authenticate"}:
        assert name.encode() in transport
    assert AUTHENTICATED["spark.network.crypto.cipher"].encode() in engine


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] files were added", True),
        ("[DELTA_METADATA_CHANGED] the metadata was changed", True),
        ("io.delta.exceptions.ConcurrentTransactionException: this error occurs when", True),
        ("[DELTA_PATH_DOES_NOT_EXIST] no such table", False),
        ("io.delta.exceptions.DeltaException: no column", False),
    ],
)
def test_only_a_commit_that_came_first_is_a_conflict(text: str, expected: bool) -> None:
    assert is_conflict(RuntimeError(text)) == expected
