"""Pictures in a real browser, with its fonts: no text is cut, and none touches a second one, at any width."""

from __future__ import annotations

from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.picture.drawing import WIDTHS
from kraft_engine import simulate
from tests.builders.browser import BrowserTab

pytestmark = [pytest.mark.ci, pytest.mark.xdist_group("chromium")]
PIXELS_SHARED_MAX = 1.0
CAPTURES = (
    ("six", "06-three-of-six-down"),
    ("elr", "29-stopped"),
    ("divergence", "11-dead-node-diverged"),
    ("jbod", "03-stopped"),
    ("dynamic-quorum", ""),
    ("phantom", "05-stopped"),
    ("uncommitted-voter-change", ""),
    ("divergence", ""),
    ("phantom", ""),
)
STORIES = ("two-leaders-one-epoch", "controllers-emptied", "loss-last-known-leader")
FAULTS = """(shared) => {
  const svg = document.querySelector('svg').getBoundingClientRect();
  const boxed = (text) => [text.textContent, text.getBoundingClientRect()];
  const texts = [...document.querySelectorAll('svg text')].map(boxed);
  const faults = [];
  for (const [words, box] of texts)
    if (box.left < svg.left - 1 || box.right > svg.right + 1 || box.bottom > svg.bottom + 1)
      faults.push(`cut: ${words}`);
  texts.forEach(([words, box], place) => texts.slice(place + 1).forEach(([more, second]) => {
    const wide = Math.min(box.right, second.right) - Math.max(box.left, second.left);
    const high = Math.min(box.bottom, second.bottom) - Math.max(box.top, second.top) - 4;
    if (wide > shared && high > shared) faults.push(`${words} over ${more}`);
  }));
  return [texts.length, faults];
}"""


@pytest.mark.parametrize(("scenario", "capture"), CAPTURES)
def test_no_text_is_cut_or_lies_over_a_second(
    scenario: str, capture: str, captured_logs: Path, tmp_path: Path, tab: BrowserTab
) -> None:
    _check(captured_logs / scenario / capture, tmp_path, tab)


@pytest.mark.parametrize("story", STORIES)
def test_no_text_of_a_story_is_cut_or_lies_over_a_second(story: str, tmp_path: Path, tab: BrowserTab) -> None:
    simulate(story, 1, tmp_path / story)
    _check(tmp_path / story, tmp_path, tab)


def _check(path: Path, tmp_path: Path, tab: BrowserTab) -> None:
    for number, cluster in enumerate(kraft_audit.open(str(path))):
        for width in WIDTHS:
            drawn = cluster.picture(width)
            assert drawn is not None
            file = tmp_path / f"{number}-{width}.svg"
            file.write_text(drawn, encoding="utf-8")
            tab.page.set_viewport_size({"width": width + 20, "height": 900})
            tab.goto(file)
            count, faults = tab.page.evaluate(FAULTS, PIXELS_SHARED_MAX)
            assert count > 10
            assert faults == [], file.name
