"""The part of GitHub's API that comments on pull requests, on loopback."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.daemon.command import SECONDS

_LISTED = re.compile(r"/repos/([^/]+/[^/]+)/issues/(\d+)/comments")
_ONE = re.compile(r"/repos/([^/]+/[^/]+)/issues/comments/(\d+)")
_PAGE = 100
_LIMIT = 65_536
"""Of characters in a comment."""


class Comments:
    """All comments of all pull requests; what is asked with another token is forbidden. Whoever has the token is a bot."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.url = ""
        self.of: dict[int, dict[int, str]] = {}
        self.requests: list[str] = []
        self._bots: set[int] = set()

    def add(self, number: int, text: str) -> int:
        """Somebody writes a comment."""
        known = max((comment for comments in self.of.values() for comment in comments), default=0)
        self.of.setdefault(number, {})[known + 1] = text
        return known + 1

    def answer(self, method: str, path: str, token: str, document: dict[str, Any]) -> tuple[int, object]:
        """What GitHub would say."""
        self.requests.append(f"{method} {urlsplit(path).path}")
        if token != f"Bearer {self.token}":
            return HTTPStatus.FORBIDDEN, {"message": "Resource not accessible by integration"}
        if len(document.get("body", "")) > _LIMIT:
            return HTTPStatus.UNPROCESSABLE_ENTITY, {"message": "Validation Failed"}
        listed, one = _LISTED.fullmatch(urlsplit(path).path), _ONE.fullmatch(urlsplit(path).path)
        if listed and method == "GET":
            page = int(parse_qs(urlsplit(path).query)["page"][0]) - 1
            shown = list(self.of.get(int(listed[2]), {}).items())[page * _PAGE : (page + 1) * _PAGE]
            return HTTPStatus.OK, [
                {"id": number, "body": text, "user": {"type": "Bot" if number in self._bots else "User"}}
                for number, text in shown
            ]
        if listed and method == "POST":
            added = self.add(int(listed[2]), document["body"])
            self._bots.add(added)
            return HTTPStatus.CREATED, {"id": added}
        for comments in self.of.values():
            if one and method == "PATCH" and int(one[2]) in comments:
                comments[int(one[2])] = document["body"]
                return HTTPStatus.OK, {"id": int(one[2])}
        return HTTPStatus.NOT_FOUND, {"message": "Not Found"}


@contextmanager
def comments(token: str) -> Iterator[Comments]:
    """Listens as long as the block lasts."""
    kept = Comments(token)

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.connection.settimeout(SECONDS)
            super().handle_one_request()

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            document = json.loads(self.rfile.read(length) or b"{}")
            code, body = kept.answer(self.command, self.path, self.headers.get("Authorization", ""), document)
            sent = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815 - the base class looks for these names

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
