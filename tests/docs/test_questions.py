"""The pages answer what on-call engineers, auditors and platform teams ask; questions.yaml says in which words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.builders.documented import FENCE
from tests.docs.links import anchor_of

ROOT = Path(__file__).resolve().parents[2]
USERS = {"on call": 9, "auditor": 8, "platform team": 8}


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asks, and where the answer is."""

    question: str
    page: str
    words: list[str]
    anchor: str = ""

    def answer(self) -> str:
        """The text of the section, or of the whole page; white space is one space."""
        text = (ROOT / self.page).read_text(encoding="utf-8")
        if self.anchor:
            # A comment of a block begins as a heading does.
            text = FENCE.sub(lambda fence: re.sub(r"^#", " ", fence[0], flags=re.MULTILINE), text)
            sections = re.split(r"^(?=#+ )", text, flags=re.MULTILINE)
            (text,) = (section for section in sections if anchor_of(section.partition("\n")[0]) == self.anchor)
        return " ".join(text.split())


ASKED = {
    user: [Question(**asked) for asked in questions]
    for user, questions in yaml.safe_load(Path(__file__).with_name("questions.yaml").read_text("utf-8")).items()
}


def test_every_user_asks() -> None:
    assert {user: len(questions) for user, questions in ASKED.items()} == USERS


@pytest.mark.parametrize(
    "asked", [asked for questions in ASKED.values() for asked in questions], ids=lambda asked: asked.question
)
def test_the_page_answers(asked: Question) -> None:
    answer = asked.answer()
    assert [words for words in asked.words if words not in answer] == []
