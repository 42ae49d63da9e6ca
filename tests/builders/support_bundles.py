"""Support bundles that operators already send, with the layouts of the scripts that write them, made from samples.

The layouts are those of Strimzi's `report.sh`, cp-ansible's `support_bundle.yml` and `fetch_logs.yml`, and of what
Confluent documents of `kubectl confluent support-bundle`. None of them copies a log dir: people put copies of the
controllers' disks beside what the script collects, and send everything together.
"""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kraft_codec.files.properties import parse_meta_properties

POD_LOG: Final = "[2026-11-20 23:51:02,114] INFO [RaftManager id=1] Completed transition to Leader (kafka)\n"
YAML: Final = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: my-cluster\n"
IN_CONTAINER: Final = "/opt/kafka/strimzi.properties"
CONFIGURATION: Final = (
    "# read by {file}\nnode.id={node_id}\nprocess.roles={roles}\ncontroller.quorum.voters=\n"
    "log.dirs=/var/lib/kafka/data\nssl.keystore.password=[hidden]\n"
)


def node_dirs_of(sample: Path, folder: Path) -> dict[int, Path]:
    """The node dirs of a sample with one capture, unpacked into the folder, by node id."""
    with tarfile.open(sample) as archive:
        archive.extractall(folder, filter="data")
    found = {}
    for file in sorted(folder.rglob("meta.properties")):
        node_id = parse_meta_properties(file.read_bytes()).node_id
        assert node_id is not None
        assert node_id not in found, "a sample of one capture is needed"
        found[node_id] = file.parent
    return found


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def configuration(node_id: int, file: str) -> str:
    """A server.properties."""
    return CONFIGURATION.format(node_id=node_id, file=file, roles="broker" if node_id > 10 else "controller")


def strimzi_report(nodes: Mapping[int, Path], folder: Path) -> Path:
    """report-….zip: `reports/` by kind of resource, pods' configurations in `reports/configs`, copied disks."""
    root = folder / "reports"
    for node_id, node_dir in nodes.items():
        pod = f"my-cluster-kafka-{node_id}"
        write(root / "configs" / f"{pod}.cfg", configuration(node_id, IN_CONTAINER))
        write(root / "podlogs" / f"{pod}.log", POD_LOG)
        write(root / "podlogs" / f"{pod}-kafka.log.0", POD_LOG)
        write(root / "pods" / f"{pod}.yaml", YAML)
        shutil.copytree(node_dir, root / "disks" / pod / "kafka-log0")
    for kind in ("configmaps", "secrets", "services", "persistentvolumeclaims", "crs", "crds"):
        write(root / kind / "my-cluster.yaml", YAML)
    write(root / "events" / "events.txt", "LAST SEEN   TYPE   REASON\n")
    return zipped(folder, "report-20-11-2026_23-52-00.zip", root)


def cfk_bundle(nodes: Mapping[int, Path], folder: Path) -> Path:
    """support-bundle-ns-….tar.gz: resources by component; each pod's log dir copied to a folder of the pod's name."""
    root = folder / "support-bundle-ns-confluent"
    write(root / "events.yaml", YAML)
    write(root / "version.yaml", YAML)
    for node_id, node_dir in nodes.items():
        component = "kafka" if node_id > 10 else "kraftcontroller"
        pod = f"{component}-{node_id}"
        place = root / "cluster-resources" / component
        write(place / "configmaps" / f"{component}-shared-config.yaml", YAML)
        write(place / "logs" / f"{pod}.log", POD_LOG)
        write(place / "statefulset.yaml", YAML)
        # kubectl cp POD:/mnt/data/data0/logs/__cluster_metadata-0 POD, with meta.properties and the configuration.
        shutil.copytree(node_dir / "__cluster_metadata-0", place / "disks" / pod)
        shutil.copy(node_dir / "meta.properties", place / "disks" / pod)
        write(place / "disks" / pod / "kafka.properties", configuration(node_id, "/opt/confluentinc/kafka.properties"))
    return packed(folder, "support-bundle-ns-confluent.tar.gz", root)


def ansible_bundle(nodes: Mapping[int, Path], folder: Path) -> Path:
    """support_bundle_….tar.gz: component, host, then configs, logs and diagnostics; the host's log dir beside them."""
    root = folder / "support_bundle_20261120_235200_prod"
    write(root / "ansible" / "inventory_1_raw.yml", "all: {}\n")
    write(root / "bundle_manifest.yml", "hosts: []\n")
    for node_id, node_dir in nodes.items():
        host = root / ("kafka_broker" if node_id > 10 else "kafka_controller") / f"host-{node_id}.example.com"
        write(host / "configs" / "server.properties", configuration(node_id, "/etc/kafka/server.properties"))
        write(host / "configs" / "log4j2.yaml", YAML)
        write(host / "configs" / "override.conf", "[Service]\n")
        write(host / "logs" / "server.log", POD_LOG)
        write(host / "logs" / "controller.log", POD_LOG)
        write(host / "diagnostics" / "disk_usage.txt", "Filesystem\n")
        shutil.copytree(node_dir, host / "data")
    return packed(folder, "support_bundle_20261120_235200_prod.tar.gz", root)


def kubectl_cp_tree(nodes: Mapping[int, Path], folder: Path) -> Path:
    """A folder with a pod's volume each, as `kubectl cp` leaves it: it copies no links."""
    root = folder / "incident"
    for node_id, node_dir in nodes.items():
        pod = root / f"my-cluster-dual-{node_id}"
        shutil.copytree(node_dir, pod / "var" / "lib" / "kafka" / "data-0" / f"kafka-log{node_id}")
        write(pod / "var" / "lib" / "kafka" / "data-0" / "lost+found" / ".keep", "")
        write(pod / "tmp" / "strimzi.properties", configuration(node_id, IN_CONTAINER))
        write(pod / "opt" / "kafka" / "custom-config" / "..2026" / "server.config", "node.id=99\n")
    return root


def zip_of_tars(nodes: Mapping[int, Path], folder: Path) -> Path:
    """One zip with an archive for each host, as cp-ansible's fetch_logs leaves them in `troubleshooting/`."""
    root = folder / "troubleshooting"
    for node_id, node_dir in nodes.items():
        host = folder / "hosts" / f"host-{node_id}"
        write(host / "server.properties", configuration(node_id, "/etc/kafka/server.properties"))
        write(host / "server.log", POD_LOG)
        shutil.copytree(node_dir, host / "kafka")
        root.mkdir(exist_ok=True)
        packed(root, f"host-{node_id}.tar.gz", host)
    return zipped(folder, "troubleshooting.zip", root)


BUNDLES: Final[Mapping[str, Callable[[Mapping[int, Path], Path], Path]]] = {
    "strimzi": strimzi_report,
    "cfk": cfk_bundle,
    "cp-ansible": ansible_bundle,
    "kubectl-cp": kubectl_cp_tree,
    "zip-of-tars": zip_of_tars,
}


def packed(folder: Path, name: str, root: Path) -> Path:
    """A tar.gz of a folder, in the order in which a file system happens to list it: here the reverse."""
    with tarfile.open(folder / name, "w:gz") as archive:
        for file in sorted(files_below(root), reverse=True):
            archive.add(file, file.relative_to(root.parent).as_posix())
    return folder / name


def zipped(folder: Path, name: str, root: Path) -> Path:
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files_below(root)):
            archive.writestr(file.relative_to(root.parent).as_posix(), file.read_bytes())
    return folder / name


def files_below(root: Path) -> Iterator[Path]:
    return (file for file in root.rglob("*") if file.is_file())
