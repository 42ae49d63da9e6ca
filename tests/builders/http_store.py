"""A web server on loopback that keeps what is PUT, answers what a test asks for, and remembers every request."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Request:
    """A request as it came; header names are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HttpServer:
    """`answers` are given first, in their order; None closes the connection after the request was carried out."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    answers: list[Answer | None] = field(default_factory=list)
    routes: dict[str, Callable[[Request], Answer]] = field(default_factory=dict)
    date: str | None = None

    def answer(self, request: Request) -> Answer | None:
        self.requests.append(request)
        path = request.target.partition("?")[0]
        if request.method + " " + path in self.routes:
            return self.routes[request.method + " " + path](request)
        if self.answers:
            scripted = self.answers.pop(0)
            if scripted is None:
                self.store(path, request)
            return scripted
        return self.store(path, request)

    def store(self, path: str, request: Request) -> Answer:
        if request.method != "PUT":
            return 405, {}, b""
        if request.headers.get("if-none-match") == "*" and path in self.objects:
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        self.objects[path] = request.body
        return 200, {}, b""


@contextlib.contextmanager
def http_server() -> Iterator[HttpServer]:
    """A running one, at `url`."""
    state = HttpServer()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = state.answer(Request(self.command, self.path, headers, body))
            if answer is None:
                self.close_connection = True
                return
            status, headers, content = answer
            self.send_response_only(status)
            self.send_header("Date", state.date or self.date_time_string())
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_PUT = do_GET = do_POST = do_CONNECT = handle_any  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
