"""This program as one file: a zip that Python runs (zipapp). The same sources give the same bytes."""

from __future__ import annotations

import io
import zipfile
from importlib import resources

_PACKAGE = "kraft_capture"
_MAIN = b"import sys\n\nfrom kraft_capture.cli import main\n\nsys.exit(main())\n"
_FIRST_LINE = b"#!/usr/bin/env python3\n"
_TIME = (1980, 1, 1, 0, 0, 0)


def program_bytes() -> bytes:
    """The one file, made of the modules that run now: from a folder, a wheel or the one file itself."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [("__main__.py", _MAIN), *_modules()]:
            member = zipfile.ZipInfo(name, _TIME)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o100644 << 16
            archive.writestr(member, data)
    return _FIRST_LINE + content.getvalue()


def _modules() -> list[tuple[str, bytes]]:
    folder = resources.files(_PACKAGE)
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".py"))
    return [(f"{_PACKAGE}/{name}", (folder / name).read_bytes()) for name in names]
