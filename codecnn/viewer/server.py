"""A server on the loopback interface for pages that are too large for a file."""

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from codecnn.errors import ConfigError
from codecnn.viewer.page import Page

HOST = "127.0.0.1"


class PageServer(ThreadingHTTPServer):
    """Serve one page on the loopback interface; `serve_forever` answers until `shutdown` is called.

    Args:
        page: The page.
        port: Port; 0 takes a free one.

    Raises:
        ConfigError: The port is in use or not allowed.
    """

    daemon_threads = True

    def __init__(self, page: Page, port: int = 0) -> None:
        self.page = page
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be used ({error.strerror}): choose another one with --port"
            ) from None

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    """Answers for the page and its chunks."""

    server: PageServer

    def do_GET(self) -> None:
        """Send the page or a chunk."""
        # A page of another site must not read the pictures by a name that resolves to this address.
        if self.headers.get("Host") not in (
            f"{HOST}:{self.server.server_port}",
            f"localhost:{self.server.server_port}",
        ):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        chunks = self.server.page.chunks
        number = self.path.removeprefix("/chunk/")
        if self.path == "/":
            self._send(b"".join(self.server.page.html(served=True)), "text/html; charset=windows-1252")
        elif number != self.path and number.isascii() and number.isdigit() and int(number) < len(chunks):
            self._send(chunks[int(number)], "application/octet-stream")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""
