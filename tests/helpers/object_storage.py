"""A stand-in for object storage on this machine: reading of files, whole or in parts, as in the protocol of S3."""

import contextlib
import re
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

from tests.helpers.http_server import served

MISSING = b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>'


@contextlib.contextmanager
def serve(folder):
    """Serve the subfolders of a folder as buckets; yields the address and the list of the files that were read."""
    reads = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def answer(self, status, body, **headers):
            self.send_response(status)
            for name, value in {
                "Content-Length": len(body),
                "Last-Modified": formatdate(0, usegmt=True),
                **headers,
            }.items():
                self.send_header(name.replace("_", "-"), str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def respond(self):
            name = unquote(self.path.split("?")[0]).lstrip("/")
            path = folder / name
            if not path.is_file():
                return self.answer(404, MISSING, Content_Type="application/xml")
            body = path.read_bytes()
            part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if part is None:
                return self.answer(200, body)
            if part[1] == "0":
                reads.append(name)
            first, last = int(part[1]), min(int(part[2]), len(body) - 1)
            return self.answer(206, body[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(body)}")

        do_GET = do_HEAD = respond  # noqa: N815

    with served(Handler) as address:
        yield address, reads
