"""How many examples a property gets where it is dear."""

from __future__ import annotations

from hypothesis import settings


def quickly(examples: int) -> int:
    """So many where people wait for the tests (the profile `quick`), else as many as the profile says."""
    return examples if settings.get_current_profile_name() == "quick" else settings.default.max_examples
