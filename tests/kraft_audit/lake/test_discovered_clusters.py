"""Each folder that `clusters_from` names is a cluster, and what fleet.yaml says of one of them holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_audit.lake.discovered_clusters import with_discovered
from kraft_audit.lake.settings import FleetSettings, SettingsError, load_fleet
from kraft_codec.errors import InputError

ID = "SPA6Lw-19VaaSAxl6jMkhw"


def fleet_of(folder: Path, text: str) -> FleetSettings:
    (folder / "fleet.yaml").write_text(f"lake: lake\n{text}\n")
    return with_discovered(load_fleet(folder / "fleet.yaml", environment={}))


def paths_of(fleet: FleetSettings) -> dict[str, list[str]]:
    return {cluster.name: cluster.paths for cluster in fleet.clusters}


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    for name in ("orders-eu", ID, "pay[1]", "not-this.tgz.part"):
        (tmp_path / "cap*tures" / name).mkdir(parents=True)
    (tmp_path / "cap*tures" / "notes.txt").touch()
    (tmp_path / "plain").symlink_to("cap*tures")
    return tmp_path / "plain"


def test_each_folder_is_a_cluster(captures: Path) -> None:
    found = fleet_of(captures.parent, "clusters_from: plain/{name}/")
    names = {path.name for path in captures.iterdir() if path.is_dir()}
    assert set(paths_of(found)) == names
    assert paths_of(found)["orders-eu"] == [f"{captures}/orders-eu"], "a fleet's paths have no slash at their end"
    assert [path.replace("[[]", "[") for path in paths_of(found)["pay[1]"]] == [f"{captures}/pay[1]"]


def test_what_stands_after_the_name_stays_a_pattern(captures: Path) -> None:
    found = fleet_of(captures.parent, "clusters_from: plain/orders-{name}/*/logs")
    assert paths_of(found) == {"eu": [f"{captures}/orders-eu/*/logs"]}


def test_a_listed_cluster_wins_by_name_or_id(captures: Path) -> None:
    text = (
        "clusters_from: plain/{name}/\n"
        f"clusters: [{{name: payments, cluster_id: {ID}}}, {{name: orders-eu, defaults: {{min.insync.replicas: 2}}}},"
        " {name: gone}, {name: elsewhere, paths: [x]}]"
    )
    found = fleet_of(captures.parent, text)
    paths = paths_of(found)
    assert paths["payments"] == [f"{captures}/{ID}"]
    assert ID not in paths
    assert next(each for each in found.clusters if each.name == "orders-eu").defaults == {"min.insync.replicas": "2"}
    assert paths["gone"] == [f"{captures}/gone"], "the run says that it is not there"
    assert paths["elsewhere"] == [f"{captures.parent}/x"]
    assert list(paths)[:4] == ["payments", "orders-eu", "gone", "elsewhere"]


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    with pytest.raises(InputError, match=r"captures/\{name\}.*no folder"):
        fleet_of(tmp_path, "clusters_from: captures/{name}")


@pytest.mark.parametrize("text", ["captures/", "s3://{name}/x", "a/*/{name}/", "{name}/{name}"])
def test_a_template_that_names_no_cluster(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"clusters_from: .*expected a path or URI with \{name\} once"):
        fleet_of(tmp_path, f"clusters_from: '{text}'")


def test_a_fleet_file_in_a_store_names_paths_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kraft_audit.lake import settings

    text = (
        b"lake: lake\nredaction_key_file: /etc/key\nclusters_from: captures/{name}/\nclusters: [{name: a, paths: [/x]}]"
    )
    monkeypatch.setattr(settings, "read_object", lambda address, limit_bytes: text)
    fleet = load_fleet("s3://audit/conf/fleet.yaml", environment={})
    assert (fleet.lake, fleet.clusters_from) == ("s3://audit/conf/lake", "s3://audit/conf/captures/{name}")
    assert (fleet.redaction_key_file, fleet.clusters[0].paths) == ("/etc/key", ["/x"])
