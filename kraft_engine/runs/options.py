"""What a caller may fix about a run that the seed or the scenario would otherwise decide."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kraft_codec.schemas.releases import METADATA_VERSIONS
from kraft_engine.brokers.elr import Release
from kraft_engine.invariants.switches import ALL_ON, Switches

FLAGS = {
    "release": "--release", "metadata_version": "--metadata-version", "elr": "--elr", "static": "--static",
    "voters": "--voters", "events": "--events", "without": "--without",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """None and () leave the choice to the seed or the scenario.

    `metadata_version` is a level, `voters` a number of controllers, `events` the length of a random run, `without`
    the safety rules that are turned off.
    """

    release: str | None = None
    metadata_version: int | None = None
    elr: bool | None = None
    static: bool | None = None
    voters: int | None = None
    events: int | None = None
    without: tuple[str, ...] = ()

    @property
    def switches(self) -> Switches:
        """Raises ValueError for an unknown rule."""
        switches = ALL_ON
        for rule in self.without:
            switches = switches.without(rule)
        return switches

    def refuse_others(self, allowed: tuple[str, ...], whose: str) -> None:
        """Raises ValueError where an option is set that this kind of run does not have."""
        for field in fields(self):
            if getattr(self, field.name) not in (None, ()) and field.name not in allowed:
                had = ", ".join(FLAGS[name] for name in allowed) or "none"
                raise ValueError(f"{FLAGS[field.name]} is no option of {whose}; it has {had}")

    def check_release(self) -> None:
        """Raises ValueError for a release that is none, or a metadata.version that it does not support."""
        if self.release is None:
            return
        try:
            release = Release(self.release)
        except ValueError as error:
            raise ValueError(f"--release {self.release}: expected a release such as 4.3.1") from error
        level = self.metadata_version
        if level is not None and not release.oldest_version <= level <= release.newest_version:
            oldest, newest = METADATA_VERSIONS[release.oldest_version], METADATA_VERSIONS[release.newest_version]
            raise ValueError(
                f"{self.release} has metadata.version {oldest} to {newest}, not {METADATA_VERSIONS[level]}"
            )

    def stage_settings(self) -> dict[str, Any]:
        """What of this a scenario's stage takes; a release brings its newest metadata.version."""
        settings: dict[str, Any] = {}
        if self.release is not None:
            settings["release"] = self.release
            settings["metadata_version"] = Release(self.release).newest_version
        if self.metadata_version is not None:
            settings["metadata_version"] = self.metadata_version
        if self.elr is not None:
            settings["elr"] = int(self.elr)
        if self.without:
            settings["switches"] = self.switches
        return settings


NO_OPTIONS = Options()


def parse_metadata_version(text: str) -> int:
    """A level (`30`), a name (`4.3-IV0`) or a release line (`4.3`: its newest level).

    Raises ValueError where it is none of these.
    """
    levels = {name: level for level, name in METADATA_VERSIONS.items()}
    if text.isdigit() and int(text) in METADATA_VERSIONS:
        return int(text)
    if text in levels:
        return levels[text]
    of_line = [level for name, level in levels.items() if name.startswith(f"{text}-")]
    if not of_line:
        raise ValueError(f"metadata.version {text}: expected a level (30), a name (4.3-IV0) or a release line (4.3)")
    return max(of_line)
