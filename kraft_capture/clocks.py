"""Time that can be compared: since boot on this machine, and the store's own clock across machines."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

_DRIFT_PER_MILLION = 500
"""As much as NTP may slew a clock; taken off elapsed time, so that a bound stays a bound."""


def boottime_ms() -> int:
    """Milliseconds since boot, time asleep included: no step of the wall clock moves it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, by this host's clock: for people only."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """The kernel's random id of this boot; empty where /proc does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class StoreClock:
    """A lower bound of the store's time, from the last `Date` header of its answers."""

    def __init__(self) -> None:
        self._date_ms: int | None = None
        self._noted_ms = 0

    def note(self, date: str | None) -> None:
        """Takes the `Date` header of an answer that just came; None and what is no date are ignored."""
        try:
            moment = parsedate_to_datetime(date or "")
        except (TypeError, ValueError, IndexError):
            return
        self._date_ms, self._noted_ms = int(moment.timestamp() * 1000), boottime_ms()

    def not_before_ms(self) -> int | None:
        """The store's clock now shows this or later; None where it never answered."""
        if self._date_ms is None:
            return None
        elapsed_ms = boottime_ms() - self._noted_ms
        return self._date_ms + elapsed_ms - (elapsed_ms * _DRIFT_PER_MILLION + 999_999) // 1_000_000

    def skew_s(self) -> float:
        """How far the store's clock is ahead of this host's, in seconds; 0 where it never answered."""
        known = self.not_before_ms()
        return 0.0 if known is None else (known - wall_ms()) / 1000

    def to_json(self) -> dict[str, Any]:
        """To be used again after a restart of the process, within the same boot."""
        return {"date_ms": self._date_ms, "noted_ms": self._noted_ms, "boot_id": boot_id()}

    def restore(self, stored: dict[str, Any]) -> None:
        """Goes on from what `to_json` gave, where the machine was not restarted since."""
        if stored.get("date_ms") is not None and stored.get("boot_id") == boot_id() != "":
            self._date_ms, self._noted_ms = stored["date_ms"], stored["noted_ms"]
