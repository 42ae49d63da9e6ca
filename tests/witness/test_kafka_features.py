"""`upgrade-check` says what Kafka's own active controller answers to kafka-features, for the same log.

Kafka 4.4.0's classes replay each log and decide; needs Java and its jars, which Maven fetches by their coordinates.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

import kraft_audit
from kraft_audit.recovery.feature_levels import FeatureCheck
from kraft_audit.recovery.upgrade_check import UpgradeCheck
from kraft_codec.schemas.releases import (
    ELR_FEATURE,
    FEATURE_DEFAULTS,
    FIRST_LEVEL_THAT_UPGRADES_KRAFT_VERSION,
    FIRST_LEVEL_WITH_ELR,
    METADATA_CHANGES,
    METADATA_VERSIONS,
    feature_default,
)
from tests.builders.captures import SMALL_CORPUS
from tests.builders.feature_logs import FeatureLog, random_feature_log
from tests.builders.kafka_jars import PROGRAMS, class_path
from tests.builders.kafka_tools import asked_features, controller_properties, running_controller
from tests.builders.ports import free_port
from tests.witness.runs import seed_count

pytestmark = [pytest.mark.kafka, pytest.mark.ci]

RELEASE = "4.4.0"
ACCEPTED = "NONE"
SEEDS = 60
TARGETS = (19, 20, 21, 25, 26, 27, 29, 30, 31, 33)
LEADERS = {"dynamic-quorum/13-final-stopped": 2, "mini-3.9.2/04-stopped": 1, "static-to-dynamic-upgrade/stopped": 1}


class Asked:
    """Questions about log dirs, answered by Kafka all at once."""

    def __init__(self, classpath: str) -> None:
        self.classpath = classpath
        self.lines: list[str] = []

    def add(self, log_dir: Path, how: str, what: str, *, leader: int = 1, is_static: bool = False) -> int:
        self.lines.append("\t".join((str(log_dir), str(leader), "1,2,3" if is_static else "", how, what)))
        return len(self.lines) - 1

    def answers(self) -> list[str]:
        program = "org.apache.kafka.controller.DecideFeatureUpdates"
        command = ["java", "-Xmx300m", "-XX:+UseSerialGC", "-cp", self.classpath, program]
        run = subprocess.run(
            command, input="\n".join(self.lines), capture_output=True, text=True, timeout=200, check=True
        )
        answers, count = run.stdout.splitlines(), len(self.lines)
        assert len(answers) == count, run.stderr[-2000:]
        self.lines.clear()
        return answers


@pytest.fixture(scope="module")
def asked(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    libraries = class_path(project_root, f"kafka-features-{RELEASE}", [f"org.apache.kafka:kafka-metadata:{RELEASE}"])
    classes = tmp_path_factory.mktemp("classes")
    program = PROGRAMS / "DecideFeatureUpdates.java"
    subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", libraries, program], check=True, timeout=120)
    return Asked(f"{classes}:{libraries}")


def checked(folder: Path, *levels: int) -> list[UpgradeCheck]:
    with kraft_audit.open(str(folder)) as clusters:
        (cluster,) = clusters
        return [cluster.upgrade_check(level) for level in levels]


def verb_of(answer: UpgradeCheck) -> str:
    version = answer.features[0]
    return "downgrade" if version.new_level < version.finalized_level else "upgrade"


def updates(features: list[FeatureCheck]) -> str:
    return ",".join(f"{feature.name}={feature.new_level}" for feature in features)


def test_the_answer_is_kafkas_for_clusters_of_every_kind(asked: Asked, tmp_path: Path) -> None:
    """Static and dynamic quorums of mixed releases, ghosts, fenced, unregistered and renewed nodes; up and down."""
    expected: dict[int, tuple[str, str]] = {}
    for seed in range(seed_count(SEEDS)):
        random = Random(seed)  # noqa: S311
        made = random_feature_log(random)
        log_dir = made.write(tmp_path / str(seed))
        level = random.choice(TARGETS)
        (answer,) = checked(tmp_path / str(seed), level)
        found = f"seed {seed} to {level}: {answer.verdict}: {answer.reason}"
        changes = [feature for feature in answer.features if feature.is_changed]
        verb = verb_of(answer)
        is_static = not made.kraft_version
        if changes:
            number = asked.add(log_dir, verb, updates(changes), is_static=is_static)
            expected[number] = answer.verdict, found
        for feature in changes:
            if feature.name == ELR_FEATURE and answer.features[0].finalized_level < FIRST_LEVEL_WITH_ELR:
                continue  # it needs the metadata.version that is raised with it
            number = asked.add(log_dir, verb, updates([feature]), is_static=is_static)
            expected[number] = feature.verdict, f"{found} {feature.name}"
        if verb == "upgrade" and (made.kraft_version or level >= FIRST_LEVEL_THAT_UPGRADES_KRAFT_VERSION):
            number = asked.add(log_dir, "release", METADATA_VERSIONS[level], is_static=is_static)
            expected[number] = answer.verdict, f"{found} as a release"
    answers = asked.answers()
    for number, (verdict, found) in expected.items():
        text = answers[number]
        if verdict == "undecided":  # it depends on the software of the active controller alone
            assert text == ACCEPTED or "Local controller" in text, (found, text)
        else:
            assert (text == ACCEPTED) == (verdict == "allowed"), (found, text)
    verdicts = [verdict for verdict, _ in expected.values()]
    assert min(verdicts.count(verdict) for verdict in ("allowed", "blocked", "undecided")) >= 10


def test_the_deadlock_of_a_ghost_and_its_way_out(asked: Asked, tmp_path: Path) -> None:
    """KAFKA-20295: controller 9 left with 4.3, the others run 4.4. Each step is what upgrade-check prints next."""
    made = FeatureLog(kraft_version=1, levels={"metadata.version": 30, "transaction.version": 2})
    steps: list[tuple[Path, UpgradeCheck]] = []

    def step() -> None:
        folder = tmp_path / str(len(steps))
        steps.append((made.write(folder), *checked(folder, 33)))

    made.controller(9, "4.3")
    for node_id in (1, 2, 3):
        made.controller(node_id, "4.4")
    step()
    made.controller(9, "4.4")  # an empty disk, formatted with --no-initial-controllers, that ran for some seconds
    step()
    made.level(metadata_version=33)
    step()
    made.unregister_controller(9)
    step()
    for log_dir, _ in steps:
        asked.add(log_dir, "upgrade", "metadata.version=33")
        asked.add(log_dir, "unregister", "9")
    answers = asked.answers()
    refused, too_old, *rest = answers
    assert "Controller 9 only supports versions 7-30" in refused
    assert "too old to support controller unregistration" in too_old
    assert [text == ACCEPTED for text in rest] == [True, False, True, True, True, False]
    assert [answer.verdict for _, answer in steps] == ["blocked", "allowed", "allowed", "allowed"]
    advice = "\n".join(steps[0][1].next_steps)
    places = [
        advice.index(words)
        for words in ("node.id=9", "--no-initial-controllers", "--feature metadata.version=33", "unregister-controller")
    ]
    assert places == sorted(places)


def test_the_answer_is_kafkas_for_real_captures(asked: Asked) -> None:
    expected: list[tuple[str, str]] = []
    for capture, leader in LEADERS.items():
        folder = Path(SMALL_CORPUS) / capture
        log_dir = folder / f"node-{leader}" / "__cluster_metadata-0"
        for level, answer in zip(TARGETS, checked(folder, *TARGETS), strict=True):
            changes = [feature for feature in answer.features if feature.is_changed]
            if changes:
                asked.add(log_dir, verb_of(answer), updates(changes), leader=leader)
                expected.append((answer.verdict, f"{capture} to {level}: {answer.reason}"))
    assert {verdict for verdict, _ in expected} == {"allowed", "blocked"}
    for text, (verdict, found) in zip(asked.answers(), expected, strict=True):
        assert (text == ACCEPTED) == (verdict == "allowed"), (found, text)


def test_kafka_features_answers_the_same_of_a_running_controller(kafka_classpath: str, tmp_path: Path) -> None:
    """Controller 9 left with 4.2: it blocks metadata.version 30, and not group.version."""
    port = free_port()
    made = FeatureLog(kraft_version=1, levels={"metadata.version": 29}, voters=(1,), port=port)
    made.controller(9, "4.2")
    made.controller(1, "4.3")
    log_dir = made.write(tmp_path)
    (answer,) = checked(tmp_path, 30)
    found = {feature.name: feature.verdict.value for feature in answer.features if feature.is_changed}
    assert (found["metadata.version"], found["group.version"]) == ("blocked", "allowed")
    properties = controller_properties(
        tmp_path, log_dir.parent, 1, port, f"controller.quorum.bootstrap.servers=127.0.0.1:{port}"
    )
    with running_controller(kafka_classpath, properties, port):
        answers = {
            name: asked_features(kafka_classpath, port, "upgrade", "--feature", f"{name}={level}", "--dry-run")
            for name, level in (("metadata.version", 30), ("group.version", 1))
        }
    assert {name: "blocked" if code else "allowed" for name, (code, _) in answers.items()} == {
        name: found[name] for name in answers
    }
    assert "Controller 9 only supports versions 7-29" in answers["metadata.version"][1]


def test_the_levels_of_every_release_are_those_of_kafka(asked: Asked) -> None:
    """Feature.defaultLevel and MetadataVersion.didMetadataChange of every level that this release knows."""
    asked.add(Path(), "levels", "")
    rows = [text.split(" ") for text in asked.answers()[0].split(";")]
    assert len(rows) > 20
    for level_text, name, is_changed, *defaults in rows:
        level = int(level_text)
        assert METADATA_VERSIONS[level] == name
        assert (level in METADATA_CHANGES) == (is_changed == "true"), name
        found = {feature: str(feature_default(feature, level)) for feature in FEATURE_DEFAULTS}
        assert dict(text.split("=") for text in defaults) == found, name
