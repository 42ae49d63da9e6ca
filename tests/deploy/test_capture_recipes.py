"""The recipes of deploy/capture/ parse, call kraft-capture with options that it has, and only read Kafka's volumes."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_capture.options import argument_parser

RECIPES = Path(__file__).resolve().parents[2] / "deploy" / "capture"
SERVICES = sorted(RECIPES.glob("*.service"))


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((RECIPES / name).read_text(encoding="utf-8")))


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


def calls() -> Iterator[tuple[str, list[str]]]:
    """(recipe, arguments) of every call of the program."""
    for path in SERVICES:
        yield path.name, shlex.split(unit(path)["Service"]["ExecStart"])[1:]
    docker = (RECIPES / "Dockerfile").read_text()
    entry = json.loads(docker.partition("ENTRYPOINT ")[2])
    run = docker.partition("docker run ")[2].partition("\nFROM")[0].replace("\\\n#", "")
    yield "Dockerfile", [*entry[1:], *run.split("\n")[0].split("kraft-capture ", 2)[-1].split()]
    job, sidecar = documents("cronjob-per-claim.yaml")[1], documents("koperator-sidecar.yaml")[0]
    yield "CronJob", pod_of(job)["containers"][0]["args"]
    yield "sidecar", sidecar["spec"]["brokerConfigGroups"]["controller"]["containers"][0]["args"]
    script = documents("daemonset-hostpath.yaml")[0]["spec"]["template"]["spec"]["containers"][0]["args"][0]
    yield "DaemonSet", shlex.split(re.findall(r"kraft-capture (--state .*?) \|\|", script)[0])


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize(
    ("recipe", "arguments"), list(calls()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_call_has_options_that_exist(recipe: str, arguments: list[str]) -> None:
    options = argument_parser().parse_args(arguments)
    assert options.to, recipe
    assert options.log_dirs or options.config, recipe
    assert not options.hosts, recipe


def test_a_job_reads_one_claim_beside_its_controller() -> None:
    state, job = documents("cronjob-per-claim.yaml")
    assert (state["kind"], job["kind"]) == ("PersistentVolumeClaim", "CronJob")
    pod = pod_of(job)
    volumes = {volume["name"]: volume["persistentVolumeClaim"] for volume in pod["volumes"]}
    assert volumes["data"]["readOnly"] is True
    assert volumes["state"]["claimName"] == state["metadata"]["name"]
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["data"]["readOnly"] is True
    (affinity,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["topologyKey"] == "kubernetes.io/hostname"
    assert list(affinity["labelSelector"]["matchLabels"].values()) == [volumes["data"]["claimName"].partition("-0-")[2]]
    assert "fsGroup" not in pod["securityContext"]
    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 900
    assert job["spec"]["concurrencyPolicy"] == "Forbid"


def test_a_privileged_pod_mounts_the_volumes_for_reading() -> None:
    (daemon_set,) = documents("daemonset-hostpath.yaml")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["privileged"] is True
    assert {mount["name"] for mount in container["volumeMounts"] if mount.get("readOnly")} == {"kubelet"}
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert daemon_set["spec"]["selector"]["matchLabels"] == labels


def test_a_sidecar_mounts_the_log_for_reading() -> None:
    (cluster,) = documents("koperator-sidecar.yaml")
    (container,) = cluster["spec"]["brokerConfigGroups"]["controller"]["containers"]
    assert [mount["name"] for mount in container["volumeMounts"] if mount.get("readOnly")] == ["kafka-data-0"]


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_service_runs_as_kafka_and_cannot_write(path: Path) -> None:
    service = unit(path)["Service"]
    assert (service["User"], service["ProtectSystem"]) == ("kafka", "strict")
    assert service["ReadOnlyPaths"] == "/var/lib/kafka"
    assert service["StateDirectory"] == "kraft-capture"


def test_the_timer_spreads_a_fleet() -> None:
    timer = unit(RECIPES / "kraft-capture.timer")["Timer"]
    assert timer["OnCalendar"] == "*:0/15"
    assert timer["FixedRandomDelay"] == "yes"


def test_docker_mounts_for_reading_and_never_relabels() -> None:
    text = (RECIPES / "Dockerfile").read_text()
    assert re.findall(r"-v (\S+:/var/lib/kafka\S*)", text) == ["/var/lib/kafka:/var/lib/kafka:ro"]


def test_policies_allow_no_more_than_a_new_object() -> None:
    policies = {path.stem: json.loads(path.read_text()) for path in RECIPES.glob("*.json")}
    put, encrypt = policies["iam-policy"]["Statement"]
    assert (put["Action"], put["Effect"]) == ("s3:PutObject", "Allow")
    assert put["Resource"].endswith("/3-*"), "the node's own prefix"
    assert set(encrypt["Action"]) <= {"kms:GenerateDataKey", "kms:Encrypt"}
    never, _ = policies["bucket-policy"]["Statement"]
    assert (never["Effect"], never["Condition"]) == ("Deny", {"Null": {"s3:if-none-match": "true"}})
    (rule,) = policies["lifecycle"]["Rules"]
    assert rule["Expiration"]["Days"] >= 90


def test_tasks_install_what_is_there() -> None:
    (tasks,) = documents("ansible/main.yaml")
    names = {"kraft-capture"} | {path.name for path in RECIPES.iterdir()}
    for task in tasks:
        copied = task.get("ansible.builtin.copy", {}).get("src")
        assert copied in (None, "{{ item }}") or copied in names
        assert set(task.get("loop", [])) <= names
        assert task["name"]
        assert sum(key.startswith("ansible.builtin.") for key in task) == 1
