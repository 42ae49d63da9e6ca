"""A folder as an S3 server on loopback that counts requests: python -m benchmarks.folder_store FOLDER PORT.

It answers what a reader and a committer ask (ListObjectsV2, HEAD, GET with a range, PUT also if absent, DELETE), to
whoever asks. A GET of `/-/counts` says how many requests of each kind there were since the one before, a GET of
`/-/objects` how many of each kind and object, or listed prefix.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


class Handler(BaseHTTPRequestHandler):
    """Requests of one connection, which is kept open."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """An answer leaves as a whole: head and body apart would wait for an acknowledgement in between."""
    folder: ClassVar[Path]
    counts: ClassVar[Counter[str]] = Counter()
    objects: ClassVar[Counter[str]] = Counter()
    parts: ClassVar[dict[str, dict[int, bytes]]] = {}

    def do_HEAD(self) -> None:
        """The size and time of an object."""
        self._object(has_body=False)

    def do_GET(self) -> None:
        """A listing, an object, or the counts."""
        asked = urlsplit(self.path)
        if asked.path in ("/-/counts", "/-/objects"):
            body = json.dumps(self.counts if asked.path == "/-/counts" else self.objects).encode()
            self.counts.clear()
            self.objects.clear()
            self._answer(200, body)
        elif "list-type" in (query := parse_qs(asked.query, keep_blank_values=True)):
            self._count("LIST", query.get("prefix", [""])[0])
            self._answer(200, self._listing(unquote(asked.path), {name: values[0] for name, values in query.items()}))
        else:
            self._object(has_body=True)

    def do_PUT(self) -> None:
        """An object as a whole; with If-None-Match only where there is none."""
        self._count("PUT")
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        query, path = parse_qs(urlsplit(self.path).query), self._path()
        if "uploadId" in query:
            self.parts[query["uploadId"][0]][int(query["partNumber"][0])] = content
            self._answer(200, b"")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb" if self.headers.get("If-None-Match") == "*" else "wb") as file:
                file.write(content)
        except FileExistsError:
            self._answer(412, b"")
        else:
            self._answer(200, b"")

    def do_POST(self) -> None:
        """An upload in parts, begun or ended; or the deletion of several objects."""
        self._count("POST")
        body, query = (
            self.rfile.read(int(self.headers["Content-Length"] or 0)),
            parse_qs(urlsplit(self.path).query, keep_blank_values=True),
        )
        path = self._path()
        if "uploads" in query:
            name = str(len(self.parts))
            self.parts[name] = {}
            self._answer(200, f"<R><Bucket>b</Bucket><Key>k</Key><UploadId>{name}</UploadId></R>".encode())
        elif "uploadId" in query:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(content for _, content in sorted(self.parts[query["uploadId"][0]].items())))
            self._answer(200, b"<R><Location>l</Location><Bucket>b</Bucket><Key>k</Key><ETag>1</ETag></R>")
        else:
            for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
                (path / unescape(key)).unlink(missing_ok=True)
            self._answer(200, b"<DeleteResult></DeleteResult>")

    def do_DELETE(self) -> None:
        """Also of an object that is not there, as S3 has it."""
        self._count("DELETE")
        self._path().unlink(missing_ok=True)
        self._answer(204, b"")

    def _count(self, kind: str, prefix: str = "") -> None:
        self.counts[kind] += 1
        self.objects[f"{kind} {'/'.join(filter(None, (unquote(urlsplit(self.path).path).strip('/'), prefix)))}"] += 1

    def _path(self) -> Path:
        return self.folder / unquote(urlsplit(self.path).path).strip("/")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Says nothing."""

    def _object(self, *, has_body: bool) -> None:
        self._count("GET" if has_body else "HEAD")
        path = self._path()
        if not path.is_file():
            self._answer(404, b"")
            return
        content, status, more = path.read_bytes(), 200, {"Last-Modified": formatdate(path.stat().st_mtime, usegmt=True)}
        asked = self.headers.get("Range")
        if has_body and asked is not None:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            end = min(int(last) + 1 if last else len(content), len(content))
            status, more["Content-Range"] = 206, f"bytes {first}-{end - 1}/{len(content)}"
            content = content[int(first) : end]
        self._answer(status, content, more, has_body=has_body)

    def _answer(self, status: int, body: bytes, more: dict[str, str] | None = None, *, has_body: bool = True) -> None:
        self.send_response(status)
        for name, value in {"ETag": '"1"', "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def _listing(self, bucket: str, query: dict[str, str]) -> bytes:
        root, prefix = self.folder / bucket.strip("/"), query.get("prefix", "")
        folder = prefix.rpartition("/")[0]
        is_flat = query.get("delimiter") == "/"
        after = query.get("continuation-token") or query.get("start-after", "")
        names = sorted(
            name for name in _names(root, folder, is_flat=is_flat) if name.startswith(prefix) and name > after
        )
        most = int(query.get("max-keys", 1000))
        parts = [f"<IsTruncated>{'true' if len(names) > most else 'false'}</IsTruncated>"]
        if len(names) > most:
            parts.append(f"<NextContinuationToken>{escape(names[most - 1])}</NextContinuationToken>")
        for name in names[:most]:
            if name.endswith("/"):
                parts.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
                continue
            found = (root / name).stat()
            parts.append(
                f"<Contents><Key>{escape(name)}</Key><Size>{found.st_size}</Size><ETag>&quot;1&quot;</ETag>"
                f"<LastModified>{_iso(found.st_mtime)}</LastModified></Contents>"
            )
        return f"<ListBucketResult>{''.join(parts)}</ListBucketResult>".encode()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _names(root: Path, folder: str, *, is_flat: bool) -> Iterator[str]:
    start = root / folder
    if not start.is_dir():
        return
    base = f"{folder}/" if folder else ""
    if is_flat:
        yield from (f"{base}{each.name}{'/' if each.is_dir() else ''}" for each in start.iterdir())
    else:
        yield from (f"{base}{each.relative_to(start).as_posix()}" for each in start.rglob("*") if each.is_file())


def main() -> None:
    """Serves until it is killed."""
    Handler.folder = Path(sys.argv[1])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()


if __name__ == "__main__":
    main()
