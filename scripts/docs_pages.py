"""The pages of the documentation that are made from the code: a hook that MkDocs calls while it builds.

Commands come from the command line itself, tables and columns from their contracts, rules from their registry, settings
from their models, so that none of these pages can drift.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

from kraft_audit.commands.cli import GROUPS, application
from kraft_audit.findings.rule_pages import pages as rule_pages
from kraft_audit.lake.settings import ClusterLabels, ClusterSettings, FleetSettings
from kraft_audit.tables.contract import Table
from kraft_audit.text.exit_codes import EXIT_CODES

ROOT = Path(__file__).resolve().parents[1]
LAYERS = {
    "bronze": "what the disks hold, as it was read",
    "silver": "what happened, replayed; the state of a subject as after each change",
    "gold": "what it means",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to those that are written by hand."""
    for name, text in generated_pages().items():
        files.append(File.generated(config, name, content=text))
    for page in executed_notebooks():
        files.append(File.generated(config, f"notebooks/{page.name}", content=page.read_text()))
    return files


def generated_pages() -> dict[str, str]:
    """Path below docs/ → Markdown."""
    return {
        "reference/commands.md": commands_page(),
        "reference/tables.md": tables_page(all_tables()),
        "reference/fleet.md": settings_page(),
        "reference/data-source.md": data_source_page(),
        "notebooks/index.md": notebooks_page(),
        "security.md": (ROOT / "SECURITY.md").read_text(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        **{f"rules/{name}": text for name, text in rule_pages().items()},
    }


def commands_page() -> str:
    """The help of every command, as it is printed."""
    group = typer.main.get_command(application())
    parts = [
        "# Commands",
        "PATH is a log dir, a node dir, a folder of node dirs or of captures, or an archive of them. "
        "On a terminal, a table that is too wide is folded; in a pipe, lines are never cut. "
        "`--output json` of `quorum`, `state` and `whatif` prints one object if PATH holds one cluster, and otherwise "
        "a list of objects. Other commands on PATH always print a list. Exit codes:",
        "\n".join(["| code | when |", "| --- | --- |", *(f"| {code} | {text} |" for code, text in EXIT_CODES.items())]),
    ]
    with typer.Context(group, info_name="kraft-audit") as root:
        for title, names in GROUPS.items():
            parts.append(f"## {title}")
            for name in names:
                parts += _helps(group.get_command(root, name), name, root)  # type: ignore[attr-defined]
    return "\n\n".join(parts) + "\n"


def _helps(command: Any, name: str, parent: Any) -> Iterator[str]:
    """The help of a command, then of those that it has: `lake`, `lake tables`."""
    with typer.Context(command, info_name=name, parent=parent, max_content_width=100) as context:
        typed = context.command_path.removeprefix("kraft-audit ")
        yield f"### {typed}\n\n```text\n{command.get_help(context)}\n```"
        for below in command.list_commands(context) if hasattr(command, "list_commands") else ():
            yield from _helps(command.get_command(context, below), below, context)


def all_tables() -> list[Table]:
    """Every table with a contract, by layer and name."""
    from kraft_audit.tables import bronze, gold, silver

    modules = (bronze, silver, gold)
    tables = {value.name: value for module in modules for value in vars(module).values() if isinstance(value, Table)}
    layers = list(LAYERS)
    return sorted(tables.values(), key=lambda table: (layers.index(table.layer), table.name))


def tables_page(tables: Iterable[Table]) -> str:
    """The table dictionary: grain, key, retention, every column."""
    parts = ["# Tables", "Columns are snake_case of Kafka's own names; times are int64 milliseconds (`_ms`)."]
    layer = ""
    for table in tables:
        if table.layer != layer:
            layer = table.layer
            parts.append(f"## {layer.capitalize()}: {LAYERS[layer]}")
        rows = "\n".join(
            f"| `{c.name}` | {_type(c.type)} | {'yes' if c.nullable else ''} | {_cell(c.comment)} |"
            for c in table.columns
        )
        parts.append(
            f"### {table.name}\n\nOne row is {table.grain}. Key: {', '.join(f'`{name}`' for name in table.key)}. "
            f"Kept: {table.retention}.\n\n{table.comment}\n\n"
            f"| column | type | null | meaning |\n| --- | --- | --- | --- |\n{rows}"
        )
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Every key of fleet.yaml."""
    parts = [
        "# fleet.yaml",
        "Relative paths start at the folder of the file. An environment variable wins over the file.",
    ]
    for title, model in (("The file", FleetSettings), ("A cluster", ClusterSettings), ("Its labels", ClusterLabels)):
        rows = "\n".join(_setting(name, field) for name, field in model.model_fields.items())
        parts.append(f"## {title}\n\n| key | default | meaning |\n| --- | --- | --- |\n{rows}")
    parts.append(f"## An example\n\n```yaml\n{(ROOT / 'conf' / 'fleet.yaml').read_text()}```")
    return "\n\n".join(parts) + "\n"


def data_source_page() -> str:
    """The data source's own documentation, then that of its stream."""
    from kraft_audit.spark import source, stream

    return f"# Spark data source\n\n{inspect.getdoc(source)}\n\n## As a stream\n\n{inspect.getdoc(stream)}\n"


def executed_notebooks() -> list[Path]:
    """Pages of notebooks as `make notebooks` left them."""
    return sorted((ROOT / "build" / "notebooks").glob("*.html"))


def notebooks_page() -> str:
    """What notebooks there are; each as it ran on the samples, where it was run."""
    executed = {page.stem for page in executed_notebooks()}
    lines = []
    for notebook in sorted((ROOT / "notebooks").glob("*.py")):
        markdown = [line.removeprefix("# ") for line in notebook.read_text().split("# %% [markdown]\n")[1].splitlines()]
        title = markdown[0].removeprefix("# ")
        summary = " ".join(itertools.takewhile(lambda line: line and not line.startswith("#"), markdown[1:]))
        shown = f"[{title}]({notebook.stem}.html)" if notebook.stem in executed else f"**{title}**"
        lines.append(f"* {shown} `notebooks/{notebook.name}`: {summary}")
    return (
        "# Notebooks\n\nEach starts with its parameters, reads log dirs or an archive without Spark, and draws "
        "pictures that need no network. `make notebooks` runs all of them on the samples.\n\n"
        + "\n".join(lines)
        + "\n\n"
        "```text\npython scripts/run_notebook.py notebooks/incident_timeline.py --out incident PATH=incident.tgz\n```\n"
    )


def _setting(name: str, field: Any) -> str:
    default = "required" if field.is_required() else _default(field)
    return f"| `{name}` | {default} | {_cell(field.description or '')} |"


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return "none" if value in (None, {}, []) or isinstance(value, BaseModel) else f"`{value}`"


def _type(type_: Any) -> str:
    return _cell(str(type_).replace(" not null", ""))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def models() -> tuple[type[BaseModel], ...]:
    """The models whose keys are documented; a test holds that each field has a description."""
    return (FleetSettings, ClusterSettings, ClusterLabels)
