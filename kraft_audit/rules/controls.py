"""The five controls that an auditor asks for, and which rules each stands on.

A control is broken by findings of severity medium and up that are not waived; it is undecided where it is not broken
and a rule behind it could not tell; else it held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CONTROLS: Final[Mapping[str, str]] = {
    "durability": "Acknowledged records survive the loss of a broker.",
    "change_management": "Voters, replicas and features change one safe step at a time, to the end.",
    "quorum_safety": "One elected leader an epoch, majorities that meet, and a fault to spare.",
    "log_integrity": "All replicas of the metadata log tell one whole story, bit for bit.",
    "access": "Listeners are encrypted, and nobody may do everything.",
}
"""Each control with its claim, in the order in which reports show them."""
_RULES: Final[Mapping[str, tuple[str, ...]]] = {
    "durability": (
        *("KP001", "KP002", "KP003", "KP004", "KP005", "KP007", "KP008", "KP009", "KP010", "KP011", "KP012"),
        *("KP016", "KP017", "KP018", "KB001", "KB005"),
    ),
    "change_management": (
        *("KV002", "KV003", "KV004", "KV006", "KV015", "KV016", "KV601", "KV602", "KV801", "KV802", "KP014", "KP015"),
        "KB002",
    ),
    "quorum_safety": (
        *("KV001", "KV005", "KV007", "KV008", "KV009", "KV010", "KV011", "KV012", "KV013", "KV014", "KV803"),
        *("KQ003", "KQ004", "KQ005", "KQ006", "KQ014", "KQ016"),
    ),
    "log_integrity": (
        *("KQ001", "KQ002", "KQ007", "KQ008", "KQ009", "KQ010", "KQ011", "KQ012", "KQ013", "KQ015", "KQ017"),
        *("KQ018", "KQ019", "KQ020", "KP006", "KP013"),
    ),
    "access": ("KB003", "KB004", "KB006"),
}
CONTROL_OF: Final[Mapping[str, str]] = {rule: control for control, rules in _RULES.items() for rule in rules}
"""Rule id → the one control that it is evidence for."""
