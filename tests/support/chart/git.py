"""A server of git over HTTP on loopback: with the password of a reader one may fetch, with that of a writer push as well."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

READER, WRITER = "for reading", "for writing"


@contextmanager
def git_server(root: Path) -> Iterator[int]:
    """Serves the bare repositories in a folder; the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - named by its base
            """Says nothing."""

        def _serve(self) -> None:
            path, _, query = self.path.partition("?")
            password = _password(self.headers.get("Authorization", ""))
            if password not in (READER, WRITER):
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.end_headers()
                return
            if "git-receive-pack" in self.path and password != WRITER:
                self.send_error(403)
                return
            environ = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "REMOTE_USER": "somebody",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": self.headers.get("Content-Length", ""),
            }
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = subprocess.run(["git", "http-backend"], input=body, capture_output=True, check=True, env=environ).stdout
            head, _, content = answer.partition(b"\r\n\r\n")
            headers = [line.decode().split(": ", 1) for line in head.split(b"\r\n")]
            self.send_response(next((int(value.split()[0]) for name, value in headers if name == "Status"), 200))
            for name, value in headers:
                if name != "Status":
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _password(header: str) -> str:
    kind, _, coded = header.partition(" ")
    return base64.b64decode(coded).decode().partition(":")[2] if kind == "Basic" else ""
