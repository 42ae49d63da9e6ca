"""The one cluster below a path, and the picture of its incidents."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import kraft_audit
from kraft_audit.cluster import Cluster
from kraft_audit.incidents.incident import incident_row
from kraft_audit.picture.happened import Picture
from kraft_audit.picture.whole_picture import picture_of


def only_cluster(path: Path) -> Cluster:
    (cluster,) = kraft_audit.open(str(path))
    return cluster


def drawn_picture(cluster: Cluster) -> Picture:
    rows = [incident_row(cluster.cluster_id, incident) for incident in cluster.incidents().incidents]
    picture = picture_of(cluster.history, rows)
    assert picture is not None
    return picture


def parsed_svg(drawn: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawn)  # noqa: S314  # what was drawn just now, without a DTD
