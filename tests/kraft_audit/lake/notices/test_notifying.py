"""What people hear of incidents: each event at least once and under one key, to whom the labels say."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.notices import message_senders, notifying
from kraft_audit.lake.notices.notifications import OpenIncident, new_events, subjects_of
from kraft_audit.lake.notices.notify_settings import load_notify
from kraft_audit.lake.notices.notifying import Notifier, Sent
from kraft_audit.lake.settings import ClusterSettings, SettingsError
from kraft_audit.text.readable import HOUR_MS
from tests.builders.commands import COMMAND
from tests.builders.notified_lakes import Listener, NotifiedLake, listener

T0 = 1_800_000_000_000


@pytest.fixture
def lake(tmp_path: Path, make_plan: Callable[..., ClusterPlan]) -> NotifiedLake:
    return NotifiedLake(str(tmp_path / "lake"), make_plan)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(notifying, "ATTEMPT_AGAIN_S", 0.0)
    with listener() as found:
        yield found


def config(folder: Path, hook: Listener, **values: Any) -> Path:
    file = folder / "notify.yaml"
    targets = {"hook": {"webhook": hook.url}}
    file.write_text(yaml.safe_dump({"targets": targets, "routes": [{"to": ["hook"]}], **values}))
    return file


def call(lake: NotifiedLake, file: Path, now_ms: int = T0) -> list[Sent]:
    settings, targets = load_notify(file)
    return Notifier(DeltaLake(lake.uri), settings, targets, lambda: now_ms).notify()


def incident(name: str = "i1", cluster: str = "a", **values: Any) -> dict[str, Any]:
    return {"incident_id": name, "cluster_id": cluster, **values}


@pytest.mark.slow
def test_opened_worse_resolved(lake: NotifiedLake, hook: Listener, tmp_path: Path) -> None:
    file = config(tmp_path, hook)
    stopped = incident("i3", "b", subject="all", severity="critical", is_clean=True, state="stopped")
    lake.run(["a", "b"], [incident(), incident("i2", "b", severity="low"), stopped])
    call(lake, file)
    call(lake, file)
    assert hook.keys == ["i1/opened/1"], "once, and nothing below `severity`, nor what was stopped in order"
    lake.run(["a"], [incident(severity="critical")])
    call(lake, file)
    assert hook.keys[1:] == ["i1/worse/2"]
    lake.run(["a"], [incident(severity="medium")])
    assert call(lake, file) == [], "it is open, and not worse"
    lake.run(["a"], [])
    call(lake, file)
    call(lake, file)
    lake.run(["b"], [])
    call(lake, file)
    assert len(hook.keys) == 2, "one clean run of its cluster is not enough, and a run of another cluster is none"
    lake.run(["a"], [incident(severity="critical")])
    call(lake, file)
    lake.run(["a"], [])
    call(lake, file)
    assert len(hook.keys) == 2, "two clean runs in turn"
    lake.run(["a"], [])
    call(lake, file)
    assert [key.rpartition("/")[0] for key in hook.keys[2:]] == ["i1/resolved"]
    assert hook.headers == hook.keys
    assert [body["severity"] for body in hook.bodies] == ["high", "critical", "critical"]


@pytest.mark.slow
def test_each_loss_is_said_whatever_incident_explains_it(lake: NotifiedLake, hook: Listener, tmp_path: Path) -> None:
    """It outlasts the incident, also one that began and ended between two runs; the next loss is said as well."""
    file = config(tmp_path, hook)
    lake.run(["a"], [incident()])
    lake.lose("a", T0, incident_id="i1")
    lake.lose("a", T0 + 500)
    call(lake, file)
    call(lake, file)
    lost = "KP020 records-lost: records lost (and 1 more)"
    assert sorted(body["headline"] for body in hook.bodies) == ["Broker 13 is lost", lost]
    lake.run(["a"], [incident()])
    lake.lose("a", T0 + HOUR_MS)
    call(lake, file, T0 + HOUR_MS)
    assert [body["headline"] for body in hook.bodies[2:]] == ["KP020 records-lost: records lost"]


@pytest.mark.slow
def test_a_message_says_since_when_with_what_effect_and_what_is_next(
    lake: NotifiedLake, hook: Listener, tmp_path: Path
) -> None:
    """For programs and for people alike; a resolved one says until when, and has no next command."""
    settings, targets = load_notify(config(tmp_path, hook, report_url="https://audit.example/kafka/"))
    blocked = ["16 partitions without a leader"]
    lake.run(["a"], [incident(from_ms=T0, effects=blocked)])
    lake.sum_up("a", "kraft-audit recover-plan /logs/a")

    def called() -> Sent:
        (sent,) = Notifier(DeltaLake(lake.uri), settings, targets, lambda: T0).notify()
        return sent

    sent, link = called(), "https://audit.example/kafka/clusters/a.html#i-i1"
    (body,) = hook.bodies
    assert body["since"] == "2027-01-15T08:00:00Z"
    assert (body["effects"], body["next"], body["link"]) == (blocked, "kraft-audit recover-plan /logs/a", link)
    assert message_senders.Message((sent.event,), sent.facts).text.splitlines() == [
        "opened, high: a: Broker 13 is lost",
        "Since 2027-01-15 08:00:00 UTC",
        "Effect: 16 partitions without a leader",
        "Next: kraft-audit recover-plan /logs/a",
        link,
        "",
        "[i1/opened/1]",
    ]
    paged = message_senders.pagerduty_event("key", message_senders.Message((sent.event,), sent.facts))
    assert paged["payload"]["timestamp"] == body["since"]
    assert [each["href"] for each in paged["links"]] == [link]
    for _ in range(2):
        lake.run(["b"], [])
        lake.run(["a"], [incident(from_ms=T0, to_ms=T0 + 4_000, effects=blocked, is_open=False)])
        Notifier(DeltaLake(lake.uri), settings, targets, lambda: T0).notify()
    assert (hook.bodies[-1]["event"], hook.bodies[-1]["until"]) == ("resolved", "2027-01-15T08:00:04Z")
    assert hook.bodies[-1]["next"] is None


def test_a_loss_is_said_with_its_incident_and_by_itself_once_that_ended() -> None:
    stop = OpenIncident("i1", "a", "broker_loss", "broker 13", "critical", "Broker 13 is lost")
    loss = OpenIncident("l1", "a", "rule", "KP020 08:00", "high", "records lost", cause_key=stop.subject_key)
    later = OpenIncident("l2", "a", "rule", "KP020 09:00", "high", "more lost", cause_key=stop.subject_key)
    alone = replace(loss, cause_key=None)
    rows: list[dict[str, Any]] = []
    for plan, found in enumerate(([stop, loss], [stop, loss, later], [alone, later], [alone, later]), 1):
        for event in new_events(subjects_of(rows), found, {"a": plan}, (), T0, "high"):
            rows.append({**{name: getattr(event, name) for name in event.__dataclass_fields__}, "at_ms": T0})
    said = [(row["plan"], row["event"], row["headline"]) for row in rows if row["event"] not in ("clean", "unclean")]
    assert said == [
        (1, "opened", "Broker 13 is lost"),
        (1, "folded", "records lost"),
        (2, "opened", "more lost"),
        (3, "opened", "records lost"),
        (4, "resolved", "Broker 13 is lost"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("hours", "name", "event"), [(5, "i1", "reopened"), (7, "i9", "opened")])
def test_what_comes_back_within_six_hours_is_the_same(
    lake: NotifiedLake, hook: Listener, tmp_path: Path, hours: int, name: str, event: str
) -> None:
    """A broker that stops each hour is a new incident of the lake each time, and one for people."""
    file = config(tmp_path, hook)
    for plan, found in enumerate([[incident()], [], []]):
        lake.run(["a"], found)
        call(lake, file, T0 + plan)
    lake.run(["a"], [incident("i9")])
    call(lake, file, T0 + hours * HOUR_MS)
    assert [key.rpartition("/")[0] for key in hook.keys] == ["i1/opened", "i1/resolved", f"{name}/{event}"]
    assert len(set(hook.keys)) == 3


@pytest.mark.slow
def test_labels_say_who_hears_of_it(lake: NotifiedLake, hook: Listener, tmp_path: Path) -> None:
    (tmp_path / "pager.key").write_text("routing-key-of-payments\n")
    targets = {
        "hook": {"webhook": f"{hook.url}"},
        "pager": {"pagerduty_file": "pager.key", "pagerduty_url": hook.url},
    }
    routes = [{"labels": {"owner": "payments"}, "severity": "critical", "to": ["pager"]}, {"to": ["hook"]}]
    file = config(tmp_path, hook, targets=targets, routes=routes)
    lake.run(["a", "b"], [incident(severity="critical"), incident("i2", "b", severity="critical")])
    lake.name([ClusterSettings(name="a", paths=["/x"], labels={"owner": "payments", "contact": "#p"})])
    hook_bodies: list[dict[str, Any]] = hook.bodies
    # A body of PagerDuty has its own form: what it is about is in its details.
    sent = call(lake, file)
    assert [(each.event.incident_id, each.target) for each in sent] == [("i1", "pager"), ("i1", "hook"), ("i2", "hook")]
    (paged,) = [body for body in hook_bodies if "routing_key" in body]
    assert (paged["event_action"], paged["dedup_key"], paged["routing_key"]) == (
        "trigger",
        "i1",
        "routing-key-of-payments",
    )
    assert paged["payload"]["custom_details"]["key"] == "i1/opened/1"
    assert paged["payload"]["custom_details"]["labels"] == {"owner": "payments", "contact": "#p"}
    for _ in range(2):
        lake.run(["a", "b"], [])
        call(lake, file)
    (resolved,) = [body for body in hook_bodies if body.get("event_action") == "resolve"]
    assert resolved["dedup_key"] == "i1"
    assert sum(body.get("event") == "resolved" for body in hook_bodies) == 2


@pytest.mark.slow
def test_a_flood_is_one_message(lake: NotifiedLake, hook: Listener, tmp_path: Path) -> None:
    file = config(tmp_path, hook)
    many = [incident(f"i{number}", "a", subject=f"broker {number}") for number in range(21)]
    lake.run(["a"], many)
    assert len(call(lake, file)) == 21
    (digest,) = hook.bodies
    assert digest["event"] == "digest"
    assert {row["key"] for row in digest["incidents"]} == {f"i{number}/opened/1" for number in range(21)}
    lake.run(["a"], [*many, incident("i30", "a", subject="broker 30")])
    call(lake, file)
    assert hook.keys[1:] == ["i30/opened/1"]


@pytest.mark.slow
def test_what_a_target_does_not_take_is_sent_by_the_next_call(
    lake: NotifiedLake, hook: Listener, tmp_path: Path
) -> None:
    file = config(tmp_path, hook)
    lake.run(["a"], [incident()])
    hook.refuse = notifying.SEND_ATTEMPTS_MAX
    (failed,) = call(lake, file)
    assert (failed.stage, failed.why) == ("failed", "it answered with status 503")
    assert "secret-path" not in str(failed)
    call(lake, file)
    assert hook.keys == ["i1/opened/1"]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_none_is_lost_and_only_a_kill_repeats_one(
    lake: NotifiedLake, hook: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Random incidents, two calls at once, one of them killed now and then before or after it sends."""
    draw = random.Random(seed)  # noqa: S311  # no secret
    file, now_ms, kills = config(tmp_path, hook), T0, 0
    states: dict[str, str | None] = dict.fromkeys("pqr")
    notified: dict[str, str | None] = dict.fromkeys("pqr")
    clean = dict.fromkeys("pqr", 0)
    expected: Counter[tuple[str, str]] = Counter()
    for _ in range(8):
        for subject in states:
            states[subject] = draw.choice([None, None, "high", "critical"])
        lake.run(["a"], [incident(s, "a", subject=s, severity=level) for s, level in states.items() if level])
        for subject, level in states.items():
            clean[subject] = 0 if level else clean[subject] + 1
            before = notified[subject]
            if level and before is None:
                event = "reopened" if expected[subject, "resolved"] else "opened"
            elif level == "critical" and before == "high":
                event = "worse"
            elif level is None and before is not None and clean[subject] == 2:
                event = "resolved"
            else:
                continue
            notified[subject] = None if event == "resolved" else "critical" if event == "worse" else level
            expected[subject, event] += 1
        point = draw.choice([None, "after-intent", "after-send"])

        def failpoint(name: str, point: str | None = point) -> None:
            if name == point:
                raise Killed

        monkeypatch.setattr(notifying, "failpoint", failpoint)
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(call, lake, file, now_ms) for _ in range(2)]:
                try:
                    done.result()
                except Killed:
                    kills += 1
        monkeypatch.setattr(notifying, "failpoint", lambda name: None)
        before_wait = len(hook.bodies)
        call(lake, file, now_ms + 60_000)
        assert len(hook.bodies) == before_wait, "whoever is sending has its time"
        now_ms += 20 * 60_000
        call(lake, file, now_ms)
    found = Counter(hook.keys)
    assert Counter(tuple(key.rpartition("/")[0].split("/")) for key in found) == expected
    assert kills
    assert found.total() - len(found) <= kills


@pytest.mark.slow
def test_a_process_that_is_killed_after_it_sent(lake: NotifiedLake, hook: Listener, tmp_path: Path) -> None:
    """Kill -9 for once: the message is sent again under the same key."""
    file = config(tmp_path, hook)
    lake.run(["a"], [incident()])
    command = [str(COMMAND), "notify", lake.uri, "--config", str(file), "--output", "json"]
    environment = os.environ | {"KRAFT_AUDIT_FAILPOINT": "after-send"}
    killed = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert hook.keys == ["i1/opened/1"]
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (again.returncode, json.loads(again.stdout)) == (0, []), "it is another call's for a quarter of an hour"
    call(lake, file, time.time_ns() // 1_000_000 + 16 * 60_000)
    assert hook.keys == ["i1/opened/1"] * 2


def test_a_cluster_that_is_not_read_resolves_nothing() -> None:
    known = OpenIncident("i1", "a", "quorum", "the quorum", "critical", "no leader")
    rows: list[dict[str, Any]] = []
    for plan, found in ((1, [known]), (2, []), (2, []), (2, [])):
        for event in new_events(subjects_of(rows), found, {"a": plan}, (), T0, "high"):
            rows.append({**{name: getattr(event, name) for name in event.__dataclass_fields__}, "at_ms": T0})
    assert [row["event"] for row in rows] == ["opened", "clean"]
    (event,) = new_events(subjects_of(rows), [], {"a": 2}, ["a"], T0, "high")
    assert event.event == "resolved", "its history proved to be another one, which has its own incidents"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"targets": {"hook": {"webhook": "https://h/TOPSECRET", "apprise": "x"}}}, "targets.hook"),
        ({"targets": {"hook": {"webhook": "ftp://h/TOPSECRET"}}}, "targets.hook.webhook"),
        ({"targets": {"hook": {"webhok": "https://h/TOPSECRET"}}}, "targets.hook.webhok"),
        ({"routes": [{"to": ["pager"]}]}, "routes[0].to: 'pager': expected one of hook"),
        (
            {"routes": [{"to": ["hook"], "labels": {"team": "x"}}]},
            "routes[0].labels: 'team': expected one of the labels",
        ),
        ({"severity": "urgent"}, "severity"),
        ({"report_url": "ftp://h/TOPSECRET"}, "report_url"),
    ],
)
def test_a_bad_file_is_one_line_without_secrets(tmp_path: Path, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_notify(config(tmp_path, Listener("https://h/TOPSECRET"), **values))
    assert expected in str(raised.value)
    assert "TOPSECRET" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_address_without_an_answer_stays_secret(tmp_path: Path) -> None:
    target = load_notify(config(tmp_path, Listener("http://127.0.0.1:9/TOPSECRET")))[1]["hook"]
    known = OpenIncident("i1", "a", "quorum", "the quorum", "critical", "no leader")
    (event,) = new_events({}, [known], {"a": 1}, (), T0, "high")
    with pytest.raises(message_senders.SendError) as raised:
        message_senders.send(target, message_senders.Message((event,), message_senders.MessageFacts("lake")))
    assert "TOPSECRET" not in f"{raised.value}{target!r}"


def test_apprise_delivers_a_text(hook: Listener, tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    targets = {"chat": {"apprise": hook.url.replace("http://", "json://")}}
    target = load_notify(config(tmp_path, hook, targets=targets, routes=[{"to": ["chat"]}]))[1]["chat"]
    known = OpenIncident("i1", "a", "quorum", "the quorum", "critical", "no leader")
    (event,) = new_events({}, [known], {"a": 1}, (), T0, "high")
    facts = message_senders.MessageFacts("lake", {"a": {"name": "orders-eu"}})
    message_senders.send(target, message_senders.Message((event,), facts))
    (body,) = hook.bodies
    assert body["title"] == "orders-eu: opened: no leader"
    assert "[i1/opened/1]" in body["message"]
