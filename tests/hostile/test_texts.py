"""Hundreds of texts that would act, wherever a log holds names and values: in no output does one of them act."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kraft_audit.text.output import neutral
from tests.builders.browser import BrowserTab
from tests.builders.commands import Command
from tests.builders.hostile_clusters import Value
from tests.builders.openmetrics_text import parse_openmetrics
from tests.builders.path_commands import code_of, printed_in
from tests.builders.payloads import ADDRESS, HARM, PAYLOADS

Run = Callable[..., subprocess.CompletedProcess[bytes]]
CLUSTER_ID = f"x` <img src=x onerror={HARM}><meta http-equiv=refresh content='0;url={ADDRESS}'>"
OWN_NOTEBOOK = """
# %% tags=["parameters"]
PATH = ""

# %%
import altair as alt
from IPython.display import Markdown, display
import kraft_audit
from kraft_audit.text.notebook_output import frame, markdown_text, show_offline

show_offline()
(cluster,) = kraft_audit.open(PATH)
changes = frame(cluster.table("partition_changes")).sort_values("from_offset")
topics = changes.loc[~changes["topic_id"].duplicated(), ["cluster_id", "topic"]]

# %%
for start in range(0, len(topics), 300):
    display(topics[start : start + 300])
Markdown("\\n".join(f"* {markdown_text(topic)}" for topic in topics["topic"]))

# %%
alt.Chart(topics).mark_point().encode(x="topic:N", color="cluster_id:N")
"""
"""Shows every name by every means that the shipped notebooks have, which cut long tables."""
NOTEBOOKS = ("elr_time_travel", "fleet_risk", "incident_timeline", "replica_divergence", "voter_change_audit")
LISTENERS = 60
"""Of one broker: an event is shown with the state of all nodes."""
ON_A_TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
RESOURCES = {"topic": 2, "broker": 4, "client metrics": 16}
DRAWN = "data:image/svg+xml;base64,"
"""A chart: a picture, in which no script runs and which loads nothing."""
ACTING = (
    f'script, img:not([src^="{DRAWN}"]), iframe, object, embed, video, audio, base, form, meta, link, animate, '
    "foreignObject, a[href*=javascript]"
)
pytestmark = [pytest.mark.ci, pytest.mark.xdist_group("chromium")]


def hostile_values() -> Iterator[Value]:
    """Each payload as the name of a topic, key, value, principal, host, rack, listener, feature, user."""
    for number in range(0, len(PAYLOADS), LISTENERS):
        reported = PAYLOADS[number : number + LISTENERS]
        endpoints = [{"name": text, "host": text, "port": 1, "securityProtocol": 0} for text in reported]
        features = [{"name": text, "minSupportedVersion": 0, "maxSupportedVersion": 1} for text in reported]
        broker = {"brokerId": number // LISTENERS + 1, "incarnationId": bytes(16), "brokerEpoch": number}
        yield "RegisterBrokerRecord", {**broker, "rack": reported[0], "endPoints": endpoints, "features": features}
    for number, text in enumerate(PAYLOADS, 1):
        topic = {"topicId": number.to_bytes(16, "big")}
        yield "TopicRecord", {**topic, "name": text}
        state = {"replicas": [1, 2], "isr": [1], "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0}
        yield "PartitionRecord", {**topic, **state, "partitionId": 0}
        yield "PartitionChangeRecord", {**topic, "partitionId": 0, "isr": [], "leader": -1}
        for kind in RESOURCES.values():
            yield "ConfigRecord", {"resourceType": kind, "resourceName": text, "name": text, "value": text}
        yield "ConfigRecord", {"resourceType": 2, "resourceName": text, "name": "cleanup.policy", "value": text}
        rule = {"id": number.to_bytes(16, "big"), "resourceType": 2, "resourceName": text, "patternType": 3}
        rule |= {"principal": text, "host": text, "operation": 3, "permissionType": 3}
        yield "AccessControlEntryRecord", rule
        quota = {"entity": [{"entityType": text, "entityName": text}], "key": text, "value": 1.0, "remove": False}
        yield "ClientQuotaRecord", quota
        yield "FeatureLevelRecord", {"name": text, "featureLevel": 1}
        yield "RemoveUserScramCredentialRecord", {"name": text, "mechanism": 1}


@pytest.fixture(scope="module")
def cluster(write_cluster: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "cluster"
    return write_cluster(folder, list(hostile_values()), cluster_id=CLUSTER_ID)


@pytest.mark.parametrize("line", printed_in("table", "csv", "json"), ids=" ".join)
def test_no_command_lets_a_text_act(line: list[str], cluster: Path, kraft_audit: Command) -> None:
    ended = kraft_audit(*(str(cluster) if part == "PATH" else part for part in line))
    assert ended.code == code_of(line), ended.err
    _nothing_acts(ended.out.replace("\r\n", "\n") + ended.err)
    if line[-1] == "csv":
        _no_formula(ended.out)
    if line[-1] == "json":
        json.loads(ended.out)


def test_dumps_as_kafka_and_reports_let_no_text_act(cluster: Path, command: Run, tmp_path: Path) -> None:
    done = command("dump", cluster, "--format", "kafka", wrapper=[sys.executable, "-c", ON_A_TERMINAL])
    assert done.returncode == 0, done.stdout[-500:]
    assert len(done.stdout) > 1_000_000, "all of it; a pipe gets the text of Kafka's tool as it is"
    _nothing_acts(done.stdout.decode().replace("\r\n", "\n"))
    for form in ("csv", "parquet", "openmetrics"):
        done = command("report", cluster, "--output", form, "--out", tmp_path / form)
        assert done.returncode == 0, done.stderr
    table = (tmp_path / "csv").read_bytes().decode()
    _nothing_acts(table.replace("\r\n", "\n"))
    _no_formula(table)
    assert all(neutral(text)[:200] in table.replace('""', '"') for text in PAYLOADS), "all are shown"
    assert parse_openmetrics((tmp_path / "openmetrics").read_text())
    reported = {text for row in pq.read_table(tmp_path / "parquet").to_pylist() for text in (row["subject"],)}
    assert {f"{text}-0" for text in PAYLOADS} <= reported, "Parquet keeps what the log holds"


@pytest.mark.parametrize(
    "name", [*NOTEBOOKS[:2], *(pytest.param(name, marks=pytest.mark.long) for name in NOTEBOOKS[2:])]
)
def test_no_text_acts_in_a_notebook(
    name: str, cluster: Path, project_root: Path, tmp_path: Path, tab: BrowserTab
) -> None:
    from scripts.run_notebook import execute

    assert execute(project_root / "notebooks" / f"{name}.py", tmp_path, {"PATH": str(cluster)})
    _nothing_acts_in_notebook(tmp_path / name, tab)


def test_every_text_is_shown_in_a_notebook_and_none_acts(cluster: Path, tmp_path: Path, tab: BrowserTab) -> None:
    from scripts.run_notebook import execute

    (tmp_path / "own.py").write_text(OWN_NOTEBOOK)
    assert execute(tmp_path / "own.py", tmp_path / "made", {"PATH": str(cluster)})
    _nothing_acts_in_notebook(tmp_path / "made" / "own", tab)
    assert tab.page.locator("main table tbody tr").count() == len(PAYLOADS)
    reported = tab.page.locator("main li").all_text_contents()
    words = [text.split() for text in reported]
    assert words == [neutral(text).split() for text in PAYLOADS], "Markdown shows each as it is"


def _nothing_acts_in_notebook(made: Path, tab: BrowserTab) -> None:
    page = made.with_suffix(".html")
    tab.goto(page)
    assert tab.page.evaluate("window.harmed") is None
    assert tab.page.evaluate(f"document.querySelectorAll(`main :is({ACTING})`).length") == 0
    assert tab.page.url == page.as_uri(), "nothing led elsewhere"
    for output in _outputs(json.loads(made.with_suffix(".ipynb").read_text())):
        _nothing_acts(output)


def _outputs(notebook: Any) -> Iterator[str]:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            for text in (output.get("text", ""), *output.get("data", {}).values()):
                yield "".join(text)


def _nothing_acts(text: str) -> None:
    acting = {
        character for character in set(text) if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Co", "Cn")
    } - {"\n"}
    assert not acting, acting


def _no_formula(table: str) -> None:
    cells = [cell for row in csv.reader(io.StringIO(table)) for cell in row if cell]
    assert not [cell for cell in cells if cell[0] in "=+@\t\r\n"]
    assert not [cell for cell in cells if cell[0] == "-" and not re.fullmatch(r"-\d+", cell)]
