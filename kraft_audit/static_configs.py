"""Static configs that a log cannot know, and what those that are understood may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_VOTER: Final = r"\s*[0-9]{1,9}(?:@[^,;\s]+:[0-9]{1,5})?\s*"
_KNOWN: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "min.insync.replicas": (re.compile("0{0,9}[1-9][0-9]{0,8}"), "a number of replicas, 1 or more"),
    "controller.quorum.voters": (
        re.compile(f"{_VOTER}(?:,{_VOTER})*"),
        "ids of voters or id@host:port, with commas between",
    ),
}

USED_CONFIGS: Final = (*_KNOWN, "unclean.leader.election.enable")
"""Those that states and rules depend on."""


def expected_of(name: str, value: str) -> str | None:
    """What was expected instead of a value that cannot be used; None where it can, or where the config is not known."""
    pattern, expected = _KNOWN.get(name, (None, ""))
    return None if pattern is None or pattern.fullmatch(value) else expected
