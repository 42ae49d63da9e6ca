"""Executes a notebook with parameters and keeps what it shows: `run_notebook.py notebooks/x.py --out DIR NAME=VALUE…`.

A notebook is a jupytext percent script whose cell tagged `parameters` holds the defaults. DIR gets x.ipynb, executed,
and x.html, which opens without a network. Exit code 0, 1 where a cell failed (what was shown until then is kept), 2 for
a parameter that the notebook does not have.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kraft_audit.text.output import neutral

ROOT = Path(__file__).resolve().parents[1]
CELL_SECONDS_MAX = 600
NO_DESCRIPTION = "No description has been provided for this image"
"""What nbconvert gives to a screen reader for a picture."""


class ParameterError(ValueError):
    """A parameter that the notebook does not have, or a value of another type than its default."""


def execute(notebook: Path, out: Path, parameters: dict[str, str], working_folder: Path = ROOT) -> bool:
    """Runs the notebook and writes both files; whether all cells ran. Raises ParameterError before the first cell."""
    content = jupytext.read(notebook)
    _inject(content, parameters, notebook)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    resources = {"metadata": {"path": str(working_folder)}}
    ran = True
    with tempfile.TemporaryDirectory(prefix="kraft-audit-notebook-") as sockets:
        # No port, even on loopback. The default name is relative, and the kernel works in another folder.
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        client = NotebookClient(content, km=kernel, timeout=CELL_SECONDS_MAX, resources=resources)
        try:
            client.execute(cleanup_kc=True)  # a cell that failed leaves no kernel, nor what it started
        except CellExecutionError as error:
            print(f"{notebook}: {error.ename}: {neutral(error.evalue)}", file=sys.stderr)
            ran = False
    out.mkdir(parents=True, exist_ok=True)
    nbformat.write(content, out / f"{notebook.stem}.ipynb")
    exporter = HTMLExporter(
        template_name="basic",
        exclude_input=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    body, _ = exporter.from_notebook_node(content)
    body = body.replace(NO_DESCRIPTION, "A drawing; the tables have its numbers")
    (out / f"{notebook.stem}.html").write_text(_page(notebook.stem, body))
    return ran


def _inject(content: Any, parameters: dict[str, str], notebook: Path) -> None:
    """Adds a cell after the tagged one. A value has the type of its default and is never evaluated."""
    (place,) = [n for n, cell in enumerate(content.cells) if "parameters" in cell.metadata.get("tags", ())]
    known = {
        target.id: ast.literal_eval(line.value)
        for line in ast.parse(content.cells[place].source).body
        if isinstance(line, ast.Assign)
        for target in line.targets
        if isinstance(target, ast.Name)
    }
    lines = []
    for name, text in parameters.items():
        if name not in known:
            raise ParameterError(f"{notebook}: no parameter {name}: there are {', '.join(known)}")
        try:
            lines.append(f"{name} = {type(known[name])(text)!r}")
        except ValueError:
            raise ParameterError(f"{notebook}: {name}: {text!r}: expected {type(known[name]).__name__}") from None
    if lines:
        content.cells.insert(place + 1, nbformat.v4.new_code_cell("\n".join(lines), metadata={"tags": ["injected"]}))


def _page(title: str, body: str) -> str:
    """A page of its own, without code: no script and no remote asset, as the policy says to the browser."""
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        "main div{overflow-x:auto}"
        "table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}"
        "pre{overflow-x:auto;background:#f6f8fa;padding:.5rem;font-size:13px}svg{max-width:100%;height:auto}"
    )
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{style}</style></head>'
        f"<body><main>{body}</main><footer>The code is in {title}.ipynb, beside this page.</footer></body></html>"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the executed notebook and its page")
    parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_intermixed_args(arguments)
    try:
        pairs = dict(text.split("=", 1) for text in given.parameters)
        return 0 if execute(given.notebook.resolve(), given.out, pairs) else 1
    except (ParameterError, OSError) as error:
        print(f"run_notebook: {error}", file=sys.stderr)
    except ValueError:
        print("run_notebook: expected NAME=VALUE", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
