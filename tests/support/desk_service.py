"""The service of the guide to HTTP services, which answers with the files that the guide shows."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SESSION = json.dumps({"session": {"id": "s1"}})


@contextmanager
def desk_service(folder: Path) -> Iterator[str]:
    """Yield the URL of the service, which answers with `answer.json` and `stream.txt`."""

    class Desk(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/stream":
                self._reply((folder / "stream.txt").read_text(), "text/event-stream")
            elif self.path == "/sessions":
                self._reply(SESSION)
            else:
                self._reply((folder / "answer.json").read_text())

        def do_DELETE(self) -> None:
            self._reply("{}")

        def log_message(self, *_: object) -> None:
            """Print no line for a request."""

        def _reply(self, text: str, kind: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
