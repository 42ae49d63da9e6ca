"""What manifests say: held and seen, passes, parents, and the example of the page that is their contract."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kraft_capture import replica_copier
from kraft_capture.generation import Generation, PassNote
from kraft_capture.log_dirs import identify
from kraft_capture.replica_copier import ReplicaCopier, Schedule
from kraft_capture.stores import FolderStore
from tests.builders.live_log import LiveLog, StoreWitness


class Clock:
    """A machine's time since boot, and its boot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms, self.boot = 1_000_000, "boot-1"
        monkeypatch.setattr(replica_copier, "boottime_ms", lambda: self.now_ms)
        monkeypatch.setattr(replica_copier, "boot_id", lambda: self.boot)


def new_copier(log: LiveLog, **options: Any) -> ReplicaCopier:
    (log.folder.parent / "state").mkdir(exist_ok=True)
    store = FolderStore(log.folder.parent / "store")
    return ReplicaCopier(identify(str(log.folder)), store, "store", log.folder.parent / "state", **options)


def manifests(copier: ReplicaCopier, log: LiveLog) -> list[dict[str, Any]]:
    witness = StoreWitness(log.folder.parent / "store" / copier.replica.key)
    witness.check()
    return list(witness.generations[copier.current.name].manifests.values())


def keys(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {path, *(key for name, inner in value.items() for key in keys(inner, f"{path}.{name}"))}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {key for inner in value for key in keys(inner, path)}
    return {path}


def test_the_page_shows_every_key_of_a_manifest(log: LiveLog, project_root: Path) -> None:
    page = (project_root / "docs" / "capture-format.md").read_text(encoding="utf-8")
    found = re.search(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    shown = json.loads(found[1])
    copier = new_copier(log)
    copier.look()
    copier.ship("once")
    (written,) = manifests(copier, log)
    assert keys(written) - {".entries.base64"} == keys(shown) - {".entries.errno", ".entries.base_offset"}


def test_bytes_are_held_when_a_pass_ten_seconds_later_finds_them(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    copier = new_copier(log)
    copier.look()
    log.append(2)
    clock.now_ms += 9_999
    copier.look()
    assert copier.current.held_end_offset is None
    clock.now_ms += 1
    copier.look()
    assert (copier.current.held_end_offset, copier.current.held_by) == (5, "found again")
    clock.now_ms += 10_000
    copier.look()
    assert copier.current.held_end_offset == 7


def test_another_boot_holds_nothing_of_what_was_seen_before(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    copier = new_copier(log)
    copier.look()
    clock.now_ms, clock.boot = clock.now_ms + 60_000, "boot-2"
    copier.look()
    assert copier.current.held_end_offset is None
    clock.now_ms += 10_000
    copier.look()
    assert copier.current.held_end_offset == 5


def test_what_went_with_the_page_cache_can_be_seen_in_the_parent(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    copier = new_copier(log)
    copier.look()
    clock.now_ms += 10_000
    log.append(3)
    copier.look()
    copier.ship("interval")
    clock.boot = "boot-2"
    log.truncate(3)
    copier.look()
    copier.ship("first")
    parent = manifests(copier, log)[0]["parent"]
    assert (parent["why"], parent["end_offset"], parent["held_end_offset"]) == ("parted", 8, 5)
    assert parent["boot_id"] == "boot-1"


def test_durable_holds_what_was_read(log: LiveLog) -> None:
    copier = new_copier(log, durable=True)
    copier.look()
    assert (copier.current.held_end_offset, copier.current.held_by) == (5, "fdatasync")


def test_held_survives_a_restart_within_a_boot(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hourly run finds what the run before it sent."""
    clock = Clock(monkeypatch)
    first = new_copier(log)
    first.look()
    first.ship("once")
    clock.now_ms += 3_600_000
    second = new_copier(log)
    second.look()
    assert second.current.held_end_offset == 5
    second.ship("once")
    assert manifests(second, log)[1]["passes"]["end_offset"] == [5, 5]


def test_sixty_passes_stay(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    copier = new_copier(log)
    for _ in range(70):
        log.append()
        log.write_state(leader=2)
        copier.look()
        clock.now_ms += 5_000
    copier.ship("interval")
    (manifest,) = manifests(copier, log)
    passes = manifest["passes"]
    assert {len(column) for column in passes.values()} == {60}
    assert passes["end_offset"] == list(range(16, 76))
    assert set(passes["leader_id"]) == {2}


def test_a_month_starts_another_generation(log: LiveLog) -> None:
    copier = new_copier(log, schedule=Schedule(generation_ms_max=-1))
    copier.look()
    copier.ship("first")
    first = copier.current.name
    copier.look()
    copier.ship("first")
    (manifest,) = manifests(copier, log)
    assert manifest["parent"]["generation"] == first != copier.current.name
    assert (manifest["parent"]["why"], manifest["log"]["end_offset"]) == ("age", 5)


def test_a_copy_of_the_state_starts_another_generation(log: LiveLog) -> None:
    """Two copiers with one state, as a cloned machine has: the second finds the number taken, and goes its own way."""
    twins = [new_copier(log), new_copier(log)]
    assert twins[0].current.name == twins[1].current.name
    for twin in twins:
        log.append()
        twin.look()
        twin.ship("first")
    assert manifests(twins[1], log)[0]["parent"]["why"] == "no state"
    assert len(StoreWitness(log.folder.parent / "store" / twins[0].replica.key).generations) == 2


def test_a_change_of_leader_is_shipped_soon_and_not_every_time(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(replica_copier.time, "monotonic", lambda: now_s)
    copier = new_copier(log)
    copier.look()
    assert copier.ship_reason() == "first"
    copier.ship("first")
    copier.look()
    copier.ship("interval")
    assert copier.ship_reason() is None
    log.write_state(leader=2)
    copier.look()
    assert copier.ship_reason() == "change"
    copier.ship("change")
    log.write_state(leader=3)
    copier.look()
    assert copier.ship_reason() is None
    now_s += 60
    assert copier.ship_reason() == "change"
    copier.ship("change")
    now_s += 900
    assert copier.ship_reason() == "interval"


def test_a_note_without_a_log_holds_nothing() -> None:
    generation = Generation.start({}, 0)
    note = PassNote(0, 0, "boot", None, None, None, None, None, None)
    generation.note_pass(note, is_durable=True)
    assert generation.held_end_offset is None
