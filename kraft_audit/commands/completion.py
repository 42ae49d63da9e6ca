"""`doctor --completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

PROGRAM: Final = "kraft-audit"
COMPLETE_VARIABLE: Final = "_KRAFT_AUDIT_COMPLETE"
Shell = Literal["bash", "zsh", "fish"]


def completion_script(shell: Shell) -> str:
    """The script with which a shell completes commands, options and their values."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script: str = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell)
    return script


def rule_ids() -> list[tuple[str, str]]:
    """The id and name of every rule."""
    from kraft_audit.rules import registry

    return [(rule.id, rule.name) for rule in registry.rules().values()]


def releases() -> list[str]:
    """The releases of Kafka whose feature levels are known."""
    from kraft_codec.schemas.releases import LINE_OF_LEVEL, release_text

    return list(dict.fromkeys(map(release_text, LINE_OF_LEVEL.values())))


def captures(ctx: Any) -> list[str]:
    """The captures below the PATH that was typed."""
    return sorted({name for cluster in _clusters(ctx) for name in cluster.captures if name})


def node_ids(ctx: Any, incomplete: str) -> list[str]:
    """The nodes below the PATH that was typed; of `1,` those that may follow."""
    before, comma, _ = incomplete.rpartition(",")
    typed = set(before.split(","))
    ids = {replica.node_id for cluster in _clusters(ctx) for replica in cluster.plan.replicas}
    return [f"{before}{comma}{id_}" for id_ in sorted(ids - {None}) if str(id_) not in typed]


def _clusters(ctx: Any) -> list[Any]:
    """The clusters below PATH; none where it is not typed yet, cannot be read, or lies in an object store."""
    import kraft_audit
    from kraft_codec.errors import CodecError, InputError

    # An option that waits for its value ends the reading of a line: PATH then lies among words that nobody took.
    paths = [word for word in ctx.params.get("path") or ctx.args if Path(word).exists()]
    try:
        return [cluster for path in paths for cluster in kraft_audit.open(path)]
    except (CodecError, InputError, OSError):
        return []
