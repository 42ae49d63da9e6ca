"""The recipes of deploy/lake/ parse, fit Kubernetes' own schemas, and call commands with options that they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from click import Context

from kraft_audit.commands.cli import application
from kraft_audit.lake.settings import load_fleet
from kraft_audit.spark.session import REQUIRED

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "deploy" / "lake"
PYTHON_FILE = re.compile(r"jobs/(\w+)\.py$")


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((RECIPES / name).read_text(encoding="utf-8")))


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return pod


def calls() -> Iterator[tuple[str, list[str]]]:
    """(recipe, arguments) of every call of the program; a job's file is the command of its name."""
    pod = pod_of(documents("cronjob.yaml")[1])
    for container in (*pod["initContainers"], *pod["containers"]):
        yield f"CronJob {container['name']}", container["args"]
    (task,) = documents("databricks.yml")[0]["resources"]["jobs"]["kraft_audit"]["tasks"]
    python = task["spark_python_task"]
    yield "Databricks", [*PYTHON_FILE.findall(python["python_file"]), *python["parameters"]]
    docker = (RECIPES / "Dockerfile").read_text()
    (run,) = re.findall(r"docker run .*? kraft-audit (run .*)", docker)
    yield "Dockerfile", run.split()


@pytest.mark.parametrize(
    ("recipe", "arguments"), list(calls()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_call_has_options_that_exist(recipe: str, arguments: list[str]) -> None:
    group = typer.main.get_command(application())
    command = group.get_command(Context(group), arguments[0])  # type: ignore[attr-defined]
    assert command is not None, recipe
    command.make_context(arguments[0], list(arguments[1:]))


def test_kubernetes_takes_the_objects() -> None:
    for document in documents("cronjob.yaml"):
        kubernetes_validate.validate(document, "1.32", strict=True)
    broken = documents("cronjob.yaml")[1]
    broken["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restart"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.32", strict=True)


def test_the_job_of_kubernetes_may_do_no_more_than_it_needs() -> None:
    job = documents("cronjob.yaml")[1]
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 3600
    pod = pod_of(job)
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert all(mount.get("readOnly") for mount in container["volumeMounts"] if mount["name"] != "tmp")


def test_the_fleet_in_the_config_map_is_one(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(documents("cronjob.yaml")[0]["data"]["fleet.yaml"])
    fleet = load_fleet(tmp_path / "fleet.yaml")
    assert fleet.lake == "s3://BUCKET/lake"


def test_spark_is_started_with_what_every_session_needs() -> None:
    (cluster,) = documents("databricks.yml")[0]["resources"]["jobs"]["kraft_audit"]["job_clusters"]
    of_databricks = cluster["new_cluster"]["spark_conf"]
    own = {name: value for name, value in REQUIRED.items() if "catalog" not in name and "extensions" not in name}
    assert own.items() <= of_databricks.items(), "Delta is the runtime's own"


def test_the_readme_names_every_recipe_and_that_none_was_applied() -> None:
    text = (RECIPES / "README.md").read_text()
    for path in RECIPES.rglob("*"):
        if path.is_file() and path.name != "README.md":
            assert str(path.relative_to(RECIPES)) in text
    assert "None of them was ever" in text
