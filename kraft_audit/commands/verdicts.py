"""How commands that decide something end and print: a verdict, why, and what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from kraft_audit.commands.results import Results
from kraft_audit.text.exit_codes import EXIT_FINDINGS, EXIT_FINE, EXIT_UNDECIDED
from kraft_audit.text.output import Output

VERDICT_WORD_WIDTH: Final = 13
EXIT_CODE_OF: Final[Mapping[str, int]] = {
    **dict.fromkeys(("yes", "allowed", "a plan stands"), EXIT_FINE),
    **dict.fromkeys(("no", "blocked", "refused"), EXIT_FINDINGS),
    "undecided": EXIT_UNDECIDED,
}
"""Every verdict of every command."""
BY_WEIGHT: Final = (EXIT_FINE, EXIT_UNDECIDED, EXIT_FINDINGS)


class Answer(Protocol):
    """A decision of recovery: why, and what to do, line by line."""

    @property
    def reason(self) -> str: ...

    @property
    def next_steps(self) -> tuple[str, ...]: ...


class Verdicts:
    """The answers about the clusters below PATH; the worst verdict gives the exit code."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.documents: list[dict[str, Any]] = []
        self._exit_code = EXIT_FINE

    def add(self, verdict: str, document: dict[str, Any]) -> None:
        """One cluster's verdict, and its JSON object."""
        self._exit_code = max(self._exit_code, EXIT_CODE_OF[verdict], key=BY_WEIGHT.index)
        self.documents.append(document)
        self.results.add([document])

    def end(self) -> int:
        """Prints the documents for programs; the exit code."""
        return self.results.end_documents(self.documents) or self._exit_code


def decision_lines(word: str, answer: Answer) -> Iterator[tuple[str, str]]:
    """The verdict with its reason, and the steps."""
    yield word.upper(), answer.reason
    for place, step in enumerate(answer.next_steps):
        yield "" if place else "NEXT", step


def print_lines(out: Output, lines: Iterable[tuple[str, str]]) -> None:
    """A word in the margin, and what it says."""
    for word, text in lines:
        out.text(f"{word:<{VERDICT_WORD_WIDTH}}{text}".rstrip(), hanging=VERDICT_WORD_WIDTH)
