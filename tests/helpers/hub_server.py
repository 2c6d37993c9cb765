"""A stand-in for the Hugging Face hub on this machine: what `model_info` and `hf_hub_download` ask of it."""

import contextlib
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler

from tests.helpers.http_server import served

COMMITS = {"main": "a" * 40, "v1": "b" * 40}


@contextlib.contextmanager
def hub(repositories):
    """Serve repositories, files by name by "owner/name"; yields the address and the list of requested paths."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def answer(self, status, headers, body=b""):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def respond(self):
            requests.append(f"{self.command} {self.path}")
            path = self.path.split("?")[0]
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
                repository, revision = match[1], match[2] or "main"
                if repository not in repositories:
                    return self.answer(401, {"X-Error-Code": "RepoNotFound"}, b"{}")
                if revision not in COMMITS:
                    return self.answer(404, {"X-Error-Code": "RevisionNotFound"}, b"{}")
                siblings = [{"rfilename": name} for name in repositories[repository]]
                info = {"id": repository, "sha": COMMITS[revision], "siblings": siblings}
                return self.answer(200, {"Content-Type": "application/json"}, json.dumps(info).encode())
            match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
            content = repositories.get(match[1], {}).get(match[3]) if match else None
            if content is None:
                return self.answer(404, {"X-Error-Code": "EntryNotFound"})
            commit = COMMITS.get(match[2], match[2])
            return self.answer(
                200, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": commit}, content
            )

        do_GET = do_HEAD = respond  # noqa: N815

    with served(Handler) as address:
        yield address, requests
