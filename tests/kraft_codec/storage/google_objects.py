"""What of Google Cloud Storage's JSON API a reader asks, over the files of a folder: `google_objects.py FOLDER BUCKET`.

Prints its port on 127.0.0.1 and serves until it is killed. Objects are named NAME/PATH, NAME being the folder's; as
where people upload file by file, no marker object stands for any folder.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

FOLDER, BUCKET = Path(sys.argv[1]), sys.argv[2]


class Objects(BaseHTTPRequestHandler):
    """GET of one object's metadata or content, or of a listing by prefix and delimiter."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: the second of two waits for the first one's acknowledgement

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        files = (path for path in FOLDER.rglob("*") if path.is_file())
        objects = {f"{FOLDER.name}/{path.relative_to(FOLDER)}": path for path in files}
        name = unquote(url.path.partition("/o/")[2])
        if not name:
            self._answer(200, listing(objects, query))
        elif name not in objects:
            self._answer(404, {"error": {"code": 404, "message": "No such object"}})
        elif query.get("alt") == "media":
            self._answer(200, objects[name].read_bytes())
        else:
            self._answer(200, resource(name, objects[name]))

    def _answer(self, status: int, found: object) -> None:
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The log is not needed."""


def listing(objects: dict[str, Path], query: dict[str, str]) -> dict[str, object]:
    """The objects directly below a prefix where there is a delimiter; prefixes too, which a reader may pass by."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
    below_prefix = {name: name[len(prefix) :] for name in sorted(objects) if name.startswith(prefix)}
    direct = [name for name, rest in below_prefix.items() if not delimiter or delimiter not in rest]
    folders = {prefix + below_prefix[name].partition("/")[0] + "/" for name in below_prefix if name not in direct}
    items = [resource(name, objects[name]) for name in direct]
    return {"kind": "storage#objects", "items": items, "prefixes": sorted(folders)}


def resource(name: str, path: Path) -> dict[str, str]:
    """The metadata of one object."""
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
    times = {"updated": changed.replace("+00:00", "Z"), "timeCreated": "2026-01-01T00:00:00.000Z"}
    size = {"size": str(path.stat().st_size), "generation": "1", "metageneration": "1"}
    return {"kind": "storage#object", "name": name, "bucket": BUCKET, **size, **times}


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Objects)
    print(server.server_port, flush=True)  # noqa: T201
    server.serve_forever()
