"""Packs a folder of captures into one archive, always the same bytes for the same files.

`python scripts/pack_captures.py FOLDER ARCHIVE [NAME…]` packs FOLDER, or the named entries in it. Names are sorted,
times are 0, everything belongs to root and may be read by everybody. An ARCHIVE that ends in `.xz` is compressed by xz:
nodes of a quorum hold the same log, which xz writes once. `samples/` and `tests/data/` hold such archives.
"""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import tarfile
from pathlib import Path


def packed(folder: Path, names: list[str] | None = None) -> bytes:
    """The archive of a folder, or of some of its entries, compressed by gzip."""
    return gzip.compress(plain_tar(folder, names), compresslevel=9, mtime=0)


def plain_tar(folder: Path, names: list[str] | None = None) -> bytes:
    """The archive of a folder, or of some of its entries, as it is before it is compressed."""
    roots = [folder / name for name in names] if names else sorted(folder.iterdir())
    files = sorted(path for root in roots for path in ([root] if root.is_file() else root.rglob("*")) if path.is_file())
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in files:
            member = tarfile.TarInfo(file.relative_to(folder).as_posix())
            member.size, member.mode = file.stat().st_size, 0o644
            member.uname = member.gname = ""
            with file.open("rb") as content:
                archive.addfile(member, content)
    return plain.getvalue()


if __name__ == "__main__":
    source, target, *chosen = sys.argv[1:]
    if target.endswith(".xz"):
        Path(target).write_bytes(lzma.compress(plain_tar(Path(source), chosen), preset=9))
    else:
        Path(target).write_bytes(packed(Path(source), chosen))
