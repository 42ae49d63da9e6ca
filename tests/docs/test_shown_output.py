"""Every example of the documentation runs as a reader would run it, and prints what its page shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.builders.documented import elided, examples, is_shown_as, languages, with_outputs
from tests.docs.shown_output import (
    NOT_RUN,
    OTHER_PAGES,
    READER_PAGES,
    ROOT,
    WITH_SPARK,
    Ended,
    renewed,
    run_examples,
    runs_here,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = """Before.
```console
$ first  # exit 1
one
two

four
$ second
$ third
old
…
end
```
```python title="saved.py"
kept = True
```
```python
print(1, 2)
# 1 2
```
```text
$ no example
```
"""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def problems_of(page: Path, folder: Path) -> list[str]:
    ended = [end for end in run_examples(page, folder) if end is not None]
    assert ended
    return [f"{page.name}: {end.example.code}\n{problem}" for end in ended if (problem := end.problem())]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", READER_PAGES, ids=lambda page: page.stem)
def test_the_first_pages_show_what_is_printed(page: Path, tmp_path: Path) -> None:
    assert problems_of(page, tmp_path) == []


@pytest.mark.ci
@pytest.mark.parametrize(
    "page",
    [page for page in OTHER_PAGES if any(runs_here(example, page) for example in examples(text_of(page)))],
    ids=lambda page: page.stem,
)
def test_the_other_pages_show_what_is_printed(page: Path, tmp_path: Path) -> None:
    assert problems_of(page, tmp_path) == []


@pytest.mark.spark
@pytest.mark.parametrize("page", READER_PAGES, ids=lambda page: page.stem)
def test_examples_with_a_spark_session_run(
    page: Path, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kraft_audit.commands.cli import run_command
    from kraft_audit.spark import register

    blocks = [
        example for example in examples(text_of(page)) if example.language == "python" and WITH_SPARK in example.code
    ]
    if not blocks:
        pytest.skip("the page has none")
    fleet = f"lake: lake\nclusters:\n  - name: divergence\n    paths: [{ROOT}/samples/divergence.tgz]\n"
    (tmp_path / "fleet.yaml").write_text(fleet)
    assert run_command(["run", str(tmp_path / "fleet.yaml"), "--engine", "local"]) == 0
    register(spark)
    for block in blocks:
        # The session's JVM stays in the folder where it was started, whatever folder this process goes to.
        code = block.code.replace('"lake/', f'"{tmp_path}/lake/').replace('"samples/', f'"{ROOT}/samples/')
        capsys.readouterr()
        exec(compile(code, str(page), "exec"), {"spark": spark})  # noqa: S102  # our own page
        assert tuple(capsys.readouterr().out.splitlines()) == block.output


@pytest.mark.parametrize("page", READER_PAGES, ids=lambda page: page.stem)
def test_every_block_of_the_first_pages_is_of_a_kind_that_is_run(page: Path) -> None:
    """A block of a shell's commands is a console block, where each command has its prompt; settings are YAML."""
    assert languages(page) <= {"console", "python", "yaml"}


def test_every_command_that_is_not_run_stands_on_a_page() -> None:
    pages = (*READER_PAGES, *OTHER_PAGES)
    skipped = {
        example.code.partition("  #")[0].rstrip()
        for page in pages
        for example in examples(text_of(page))
        if example.language == "console" and not runs_here(example, page)
    }
    assert skipped == NOT_RUN.keys()
    not_run = [example for page in pages for example in examples(text_of(page)) if example.code in NOT_RUN]
    assert [example.code for example in not_run if example.output] == [], "nothing compares what they print"


def test_examples_of_a_page() -> None:
    first, second, third, code = examples(PAGE)
    assert (first.code, first.exit_code, first.output) == ("first", 1, ("one", "two", "", "four"))
    assert (second.code, second.exit_code, second.output) == ("second", 0, ())
    assert (third.code, third.output) == ("third", ("old", "…", "end"))
    assert (code.language, code.code, code.output) == ("python", "print(1, 2)", ("1 2",))


def test_renewed_outputs_stand_where_the_old_ones_stood() -> None:
    assert with_outputs(PAGE, [example.output for example in examples(PAGE)]) == PAGE
    printed = [("1",), ("not shown",), ("new", "…", "end"), ("1 3",)]
    renewed_page = with_outputs(PAGE, printed)
    assert [example.output for example in examples(renewed_page)] == [("1",), (), ("new", "…", "end"), ("1 3",)]
    assert "# exit 1\n1\n$ second\n$ third\nnew\n" in renewed_page
    assert renewed_page.endswith("print(1, 2)\n# 1 3\n```\n```text\n$ no example\n```\n")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (("a", "b"), ("a", "b"), True),
        (("a", "b"), ("a", "c"), False),
        (("a", "b"), ("a", "b", "c"), False),
        (("a", "…"), ("a", "b", "c"), True),
        (("a", "…", "c"), ("a", "b", "b", "c"), True),
        (("a", "…", "c"), ("a", "c"), True),
        (("a", "…", "c"), ("a", "c", "d"), False),
        (("…", "b", "…"), ("a", "b", "c"), True),
        (("a …", "b"), ("a more", "b"), False),
    ],
)
def test_only_a_line_of_its_own_leaves_lines_out(shown: tuple[str, ...], printed: tuple[str, ...], same: bool) -> None:
    assert is_shown_as(shown, printed) is same


def test_what_was_left_out_stays_left_out() -> None:
    assert elided(("a", "b"), ("x", "y", "z")) == ("a", "b")
    assert elided(("a", "b", "c", "d"), ("x", "…", "z")) == ("a", "…", "d")
    assert elided(("a", "b", "c"), ("x", "…")) == ("a", "…")
    assert elided(("a", "b"), ("x", "…", "z")) == ("a", "b"), "nothing is left to leave out"
    with pytest.raises(ValueError, match="write it by hand"):
        elided(("a", "b"), ("…", "y", "…"))


def test_drift_is_seen_and_renewed(tmp_path: Path) -> None:
    """Another number, another exit code and a command that says nothing; a hash and the seconds of a run may differ."""
    counted, packed, run = examples(
        "```console\n$ kraft-audit check x  # exit 1\n12 partitions\n"
        f"$ kraft-audit evidence x\nsha256 {'0' * 64}\n$ kraft-audit run x\nread 1.5 s, 2 clusters\n```\n"
    )
    assert Ended(counted, 1, ("12 partitions",), "").problem() == ""
    assert "13 partitions" in Ended(counted, 1, ("13 partitions",), "").problem()
    assert Ended(counted, 0, ("12 partitions",), "why").problem() == "exit code 0, not 1\nwhy"
    assert Ended(packed, 0, (f"sha256 {'a' * 64}",), "").problem() == ""
    assert Ended(packed, 0, (), "").problem().startswith("it printed nothing")
    assert Ended(run, 0, ("read 17.25 s, 2 clusters",), "").problem() == ""
    assert "3 clusters" in Ended(run, 0, ("read 1.5 s, 3 clusters",), "").problem()
    (silent,) = examples("```console\n$ kraft-audit check x\n```\n")
    assert Ended(silent, 0, ("13 partitions",), "").problem() == ""
    assert "13 partitions" in Ended(silent, 0, ("13 partitions",), "", is_compared=True).problem()
    page = tmp_path / "page.md"
    page.write_text("```console\n$ kraft-audit check x  # exit 1\n12 partitions\n```\n")
    assert "\n13 partitions\n" in renewed(page, [Ended(counted, 1, ("13 partitions",), "")])
    assert renewed(page, [None]) == text_of(page)
