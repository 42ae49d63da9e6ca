"""A fleet.yaml that cannot be used is one line: the file, the key, the value, what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_audit.lake.settings import SettingsError, load_fleet
from kraft_codec.errors import InputError

GOOD = """
lake: ../lake
clusters:
  - name: payments
    paths: [logs/*, s3://bucket/logs]
    cluster_id: SPA6Lw-19VaaSAxl6jMkhw
    dialect: kip856
    defaults: {min.insync.replicas: 1, unclean.leader.election.enable: false}
  - name: orders
    paths: [/var/kafka]
"""
ONE = "clusters:\n  - {name: a, paths: [x]"

BAD = {
    "empty": ("", "lake: expected a value, found none"),
    "a list": ("- a", "file: ['a']: expected settings by name"),
    "no lake": ("clusters: [{name: a, paths: [x]}]", "lake: expected a value, found none"),
    "no clusters": ("lake: x", "clusters: expected a value, found none"),
    "lake is a number": (f"lake: 3\n{ONE}}}", "lake: 3: expected text"),
    "clusters are empty": ("lake: x\nclusters: []", "clusters: []: expected at least one entry"),
    "a cluster is text": ("lake: x\nclusters: [foo]", "clusters[0]: 'foo': expected a mapping"),
    "no paths": ("lake: x\nclusters: [{name: a}]", "clusters[0].paths: expected a value, found none"),
    "paths are text": ("lake: x\nclusters: [{name: a, paths: x}]", "clusters[0].paths: 'x': expected a list"),
    "paths are empty": (
        "lake: x\nclusters: [{name: a, paths: []}]",
        "clusters[0].paths: []: expected at least one entry",
    ),
    "a path is empty": (
        "lake: x\nclusters: [{name: a, paths: ['']}]",
        "clusters[0].paths[0]: '': expected a path or URI",
    ),
    "unknown key": (
        "lake: x\nclusters: [{name: a, path: [x]}]",
        "clusters[0].path: ['x']: expected a known key, perhaps paths",
    ),
    "unknown key at the top": (f"lakes: y\nlake: x\n{ONE}}}", "lakes: 'y': expected a known key, perhaps lake"),
    "unknown dialect": (
        f"lake: x\n{ONE}, dialect: kip999}}",
        "clusters[0].dialect: 'kip999': expected one of kip853, kip856, kip642",
    ),
    "short cluster id": (
        f"lake: x\n{ONE}, cluster_id: abc}}",
        "clusters[0].cluster_id: 'abc': expected a cluster id of 22 characters, as in meta.properties",
    ),
    "name with a slash": (
        "lake: x\nclusters: [{name: a/b, paths: [x]}]",
        "clusters[0].name: 'a/b': expected a name of 1 to 128 printable characters without slashes",
    ),
    "name with a newline": (
        'lake: x\nclusters: [{name: "a\\nb", paths: [x]}]',
        r"clusters[0].name: 'a\nb': expected a name",
    ),
    "same name twice": (
        "lake: x\nclusters: [{name: a, paths: [x]}, {name: a, paths: [y]}]",
        "clusters[1].name: 'a': expected a name that no other cluster has (clusters[0] has it)",
    ),
    "a default is a list": (f"lake: x\n{ONE}, defaults: {{a: [1]}}}}", "clusters[0].defaults.a: [1]: expected text"),
    "a default is no number": (
        f"lake: x\n{ONE}, defaults: {{min.insync.replicas: two}}}}",
        "expected min.insync.replicas to be a number of replicas, 1 or more",
    ),
    "a default names no voters": (
        f"lake: x\n{ONE}, defaults: {{controller.quorum.voters: 'node-1:9093'}}}}",
        "expected controller.quorum.voters to be ids of voters or id@host:port",
    ),
    "same key twice": (f"lake: x\nlake: y\n{ONE}}}", "line 2: \"key 'lake' twice\": expected YAML"),
    "no YAML": ("lake: [", "line 1: "),
    "a Python object": ("!!python/object/apply:os.system [ls]", "line 1: "),
    "unknown committer": (f"lake: x\ncommitter: jvm\n{ONE}}}", "committer: 'jvm': expected one of deltalake, spark"),
    "object store without a key": (
        f"lake: s3://bucket/lake\n{ONE}}}",
        "redaction_key_file: expected a local file, as the lake is no local folder",
    ),
    "key inside the lake": (f"lake: x\nredaction_key_file: x/key\n{ONE}}}", "expected a file outside the lake"),
    "key in an object store": (f"lake: x\nredaction_key_file: s3://b/key\n{ONE}}}", "expected a local file"),
}


def written(folder: Path, text: str) -> Path:
    file = folder / "conf" / "fleet.yaml"
    file.parent.mkdir()
    file.write_text(text)
    return file


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_line(case: str, tmp_path: Path) -> None:
    text, expected = BAD[case]
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as raised:
        load_fleet(file, environment={})
    line = str(raised.value)
    assert line.startswith(f"{file}: ")
    assert expected in line
    assert "\n" not in line


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        load_fleet(tmp_path / "fleet.yaml", environment={})


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    fleet = load_fleet(written(tmp_path, GOOD), environment={})
    payments, orders = fleet.clusters
    assert fleet.lake == f"{tmp_path}/lake"
    assert fleet.redaction_key_file == f"{tmp_path}/lake.redaction-key"
    assert payments.paths == [f"{tmp_path}/conf/logs/*", "s3://bucket/logs"]
    assert payments.defaults == {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
    assert (orders.paths, orders.dialect, orders.cluster_id) == (["/var/kafka"], None, None)


@pytest.mark.parametrize("uri", ["file:///srv/a%20b/../c%2525", "FILE://localhost/srv/c%2525"])
def test_a_file_uri_is_the_path_that_it_encodes(uri: str, tmp_path: Path) -> None:
    text = f"lake: '{uri}'\nclusters: [{{name: a, paths: ['{uri}', 'file://elsewhere/x']}}]\n"
    fleet = load_fleet(written(tmp_path, text), environment={})
    assert (fleet.lake, fleet.redaction_key_file) == ("/srv/c%25", "/srv/c%25.redaction-key")
    assert fleet.clusters[0].paths == ["/srv/c%25", "file://elsewhere/x"], "the storage reports another host"


def test_environment_wins_over_the_file_and_arguments_over_both(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)

    def lake(argument: str | None, environment: dict[str, str]) -> str:
        return load_fleet(file, arguments={"lake": argument}, environment=environment).lake

    assert lake(None, {}) == f"{tmp_path}/lake"
    assert lake(None, {"KRAFT_AUDIT_LAKE": "/from/environment"}) == "/from/environment"
    assert lake("/from/argument", {"KRAFT_AUDIT_LAKE": "/from/environment"}) == "/from/argument"
    assert lake("relative", {}) == str(Path.cwd() / "relative")


def test_the_error_names_the_place_that_holds_the_value(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    with pytest.raises(SettingsError, match=r"^KRAFT_AUDIT_COMMITTER: committer: 'x': expected one of"):
        load_fleet(file, environment={"KRAFT_AUDIT_COMMITTER": "x"})
    with pytest.raises(SettingsError, match=r"^--committer: committer: 'x': expected one of"):
        load_fleet(file, arguments={"committer": "x"}, environment={})
