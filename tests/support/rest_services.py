"""Services on loopback that speak the documented HTTP interfaces of products that run elsewhere.

They are strict: what the documentation of the product forbids is an error here, too.
"""

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "secret-api-key"


class Refusal(Exception):
    """An answer with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Call:
    """A request that a service answers."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        parts = urlsplit(target)
        self.method, self.path = method, unquote(parts.path)
        self.params = parse_qs(
            parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)
        )
        self.headers = headers
        self.replied: dict[str, str] = {}
        """Headers of the response."""
        kind = headers.get("content-type", "")
        if body and kind not in ("application/json", "application/x-ndjson"):
            raise Refusal(415, "the body must be application/json")
        is_lines = self.path.endswith("/_bulk")
        self.body: Any = json.loads(body) if body and not is_lines else None
        self.lines = [json.loads(one) for one in body.splitlines()] if is_lines else []

    def param(self, name: str, default: str | None = None) -> str:
        if name not in self.params and default is None:
            raise Refusal(400, f"the parameter {name} is missing")
        return self.params.get(name, [default or ""])[0]


class RestService:
    """A server with routes; a context manager that can be stopped and started on its port."""

    routes: tuple[tuple[str, str, str], ...] = ()
    """Method, pattern of the path, and name of the method that answers."""

    def __init__(self) -> None:
        self.port = 0
        self.calls: list[tuple[str, str]] = []
        self._server: ThreadingHTTPServer | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, replied, document = service.respond(self.command, self.path, headers, body)
                payload = b"" if document is None else json.dumps(document).encode()
                self.send_response(status)
                for name, value in replied.items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def end(self, _how: object = None) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None

    def respond(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and document of the response."""
        with self._lock:
            replied: dict[str, str] = {}
            try:
                call = Call(method, target, headers, body)
                replied = call.replied
                self.calls.append((method, call.path))
                self.check(call)
                status, document = self._route(call)
            except Refusal as refusal:
                return refusal.status, replied, self.error(str(refusal))
            return status, replied, document

    def _route(self, call: Call) -> tuple[int, Any]:
        for method, pattern, name in self.routes:
            match = re.fullmatch(pattern, call.path)
            if match and method == call.method:
                answering: Callable[..., tuple[int, Any]] = getattr(self, name)
                return answering(call, *match.groups())
        raise Refusal(404, f"no route for {call.method} {call.path}")

    def check(self, call: Call) -> None:
        """Raise Refusal for a request that is not allowed."""

    def error(self, message: str) -> Any:
        """Return the document of an error."""
        return {"error": {"message": message}}


def only(document: Any, *keys: str) -> Any:
    """Return the document. Raises Refusal for keys that the interface does not have."""
    if not isinstance(document, dict):
        raise Refusal(400, "the body is no object")
    unknown = sorted(document.keys() - set(keys))
    if unknown:
        raise Refusal(400, f"unknown field {unknown[0]!r}")
    return document
