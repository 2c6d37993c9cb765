"""A server on the loopback interface for pages that are too large for a file."""

import re
import secrets
import socket
import sys
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from codecnn.base.errors import ConfigError
from codecnn.viewer.page import Page

HOST = "127.0.0.1"

REQUEST_SECONDS = 60.0
"""Longest time in seconds from the start of a connection to the end of its answer."""

_CHUNK = re.compile(r"chunk/(0|[1-9][0-9]{0,8})")


class PageServer(ThreadingHTTPServer):
    """Serve one page on the loopback interface; `serve_forever` answers until `shutdown` is called.

    All users of the machine reach the loopback interface, so the address of the page contains a random token, and
    requests without it are refused. Connections that take too long are closed.

    Args:
        page: The page.
        port: Port; 0 takes a free one.
        seconds: Longest time in seconds for a connection.

    Raises:
        ConfigError: The port is in use or not allowed.
    """

    daemon_threads = True

    def __init__(self, page: Page, port: int = 0, *, seconds: float = REQUEST_SECONDS) -> None:
        self.page = page
        self.root = f"/{secrets.token_urlsafe(16)}/"
        self._seconds = seconds
        self._deadlines: dict[socket.socket, float] = {}
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be used ({error.strerror}): choose another one with --port"
            ) from None

    @property
    def url(self) -> str:
        """Address of the page, with the token."""
        return f"http://{HOST}:{self.server_port}{self.root}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in a thread of its own."""
        self._deadlines[request] = time.monotonic() + self._seconds
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close the connections whose time is up; `serve_forever` calls this twice a second."""
        now = time.monotonic()
        for request, deadline in list(self._deadlines.items()):
            if deadline < now:
                # The thread of the connection stops waiting for data.
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors except those of connections, which a browser ends at any time."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers for the page and its chunks."""

    server: PageServer

    def do_GET(self) -> None:
        """Send the page or a chunk."""
        # A page of another site must not read the pictures by a name that resolves to this address.
        hosts = (f"{HOST}:{self.server.server_port}", f"localhost:{self.server.server_port}")
        root = self.server.root
        known = secrets.compare_digest(self.path[: len(root)].encode(), root.encode())
        if not known or self.headers.get("Host") not in hosts:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        name, chunks = self.path[len(root) :], self.server.page.chunks
        if name == "":
            self._send(b"".join(self.server.page.html(served=True)), "text/html; charset=windows-1252")
        elif (match := _CHUNK.fullmatch(name)) and int(match[1]) < len(chunks):
            self._send(chunks[int(match[1])], "application/octet-stream")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""
