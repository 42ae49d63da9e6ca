"""What to do about the findings of one rule: each advice once, with whom it is for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NAMES_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Advice:
    """One advice and the subjects that need it, each once."""

    text: str
    subjects: tuple[str, ...]

    @property
    def names(self) -> str:
        """The subjects by name, as far as a line has room for them."""
        mark = ", " if any(" " in subject for subject in self.subjects) else " "
        cut = [*self.subjects[:NAMES_SHOWN], "…"] if len(self.subjects) > NAMES_SHOWN else self.subjects
        return mark.join(cut)


def distinct_advice(told: Iterable[tuple[str, str]]) -> list[Advice]:
    """The advice in some (subject, what to do), what most subjects need first."""
    subjects: dict[str, dict[str, None]] = defaultdict(dict)
    for subject, text in told:
        subjects[text][subject] = None
    found = [Advice(text, tuple(theirs)) for text, theirs in subjects.items()]
    return sorted(found, key=lambda advice: -len(advice.subjects))
