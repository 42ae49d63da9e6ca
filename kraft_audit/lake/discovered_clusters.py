"""Clusters that fleet.yaml does not list: each folder that `clusters_from` names is one."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.settings import NAME_MARK, ClusterSettings, FleetSettings, SettingsError
from kraft_codec.errors import InputError
from kraft_codec.file_names import printable
from kraft_codec.storage.path_patterns import matching_paths

_MAGIC: Final = re.compile(r"[*?\[]")


def with_discovered(fleet: FleetSettings) -> FleetSettings:
    """The fleet with a cluster for each folder that `clusters_from` names, after those that the file lists.

    A listed cluster without paths has the folder of its name, or of its cluster id. A folder of a listed cluster's name
    or id is that cluster. Costs one listing. Raises InputError where nothing can be listed, or nothing is there;
    SettingsError for a folder whose name no cluster can have.
    """
    template = fleet.clusters_from
    if template is None:
        return fleet
    path_by_name = _folders(template)
    listed = [
        cluster if cluster.paths else cluster.model_copy(update={"paths": [_path_of(template, cluster, path_by_name)]})
        for cluster in fleet.clusters
    ]
    taken = {name for cluster in fleet.clusters for name in (cluster.name, cluster.cluster_id)}
    clusters = listed + [_cluster(name, path) for name, path in path_by_name.items() if name not in taken]
    return fleet.model_copy(update={"clusters": clusters})


def _folders(template: str) -> dict[str, str]:
    """The path of each folder by what stands for {name} in it, in the order of their names."""
    before, _, after = template.partition(NAME_MARK)
    in_name, slash, below = after.partition("/")
    folder, _, first = before.rpartition("/")
    # What stands after the name's own part is a pattern of each cluster's: it is looked at when that is planned.
    pattern = f"{_plain(folder)}/{_plain(first)}*{in_name}"
    wanted = re.compile(f"{re.escape(first)}(.+){re.escape(in_name)}", re.DOTALL)
    path_by_name = {}
    for path in matching_paths(pattern):
        match = wanted.fullmatch(path.rstrip("/").rpartition("/")[2])
        if match is not None and path != pattern:
            path_by_name[match[1]] = f"{_plain(path)}{slash}{below}"
    if not path_by_name:
        raise InputError(printable(template.partition("?")[0]), f"clusters_from: no folder {first}{NAME_MARK}{in_name}")
    return path_by_name


def _plain(path: str) -> str:
    """The path as a pattern that matches it alone."""
    return glob.escape(path) if not is_uri(path) and _MAGIC.search(path) else path


def _path_of(template: str, cluster: ClusterSettings, path_by_name: Mapping[str, str]) -> str:
    """Where a listed cluster lies; where nothing does, the path that it would have, which the run says is not there."""
    names = [name for name in (cluster.name, cluster.cluster_id) if name is not None]
    return next(
        (path_by_name[name] for name in names if name in path_by_name), template.replace(NAME_MARK, cluster.name)
    )


def _cluster(name: str, path: str) -> ClusterSettings:
    try:
        return ClusterSettings(name=name, paths=[path])
    except ValidationError:
        expected = "a name of 1 to 128 printable characters without slashes"
        raise SettingsError("clusters_from", "name", name, expected) from None
