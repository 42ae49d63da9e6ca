"""A way to a server that can be cut: a relay on loopback that counts what goes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Relay:
    """Forwards connections to a port; `cut` ends those that are open and refuses new ones until `mend`."""

    def __init__(self, target: int) -> None:
        self.sent_bytes = 0
        self._target = target
        self._is_cut = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        with self._lock:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, target, counts in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._forward, args=(source, target, counts), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if counts:
                    self.sent_bytes += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()


@contextlib.contextmanager
def relay(target: int) -> Iterator[Relay]:
    """A running one to a port of this machine."""
    running = Relay(target)
    try:
        yield running
    finally:
        running.close()
