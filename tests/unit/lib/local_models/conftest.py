"""Tiny models, a hub that serves them, and a package index that holds them as wheels."""

import hashlib
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from holodeck.lib.local_models.catalog import Bert, HubFile, KnownModel, Wheel
from holodeck.lib.local_models.weights import write_gguf
from support.similarity import HEADS, tiny_safetensors, vocabulary

WEIGHTS = b"GGUF" + bytes(range(256)) * 4096
"""About a megabyte that begins as a GGUF file does."""

PARTS = (WEIGHTS[:300_000], WEIGHTS[300_000:600_000], WEIGHTS[600_000:])


class Hub:
    """A model hub on loopback; it serves `body`, and what it was asked for is in `paths`."""

    def __init__(self):
        self.body = WEIGHTS
        self.announced = None
        self.status = 200
        self.paths = []
        self.asked = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                hub.paths.append(self.path)
                self.send_response(hub.status)
                self.send_header("Content-Length", str(hub.announced or len(hub.body)))
                self.end_headers()
                middle = len(hub.body) // 2
                self.wfile.write(hub.body[:middle])
                hub.asked.set()
                hub.may_go_on.wait(180)
                self.wfile.write(hub.body[middle:])

            def log_message(self, *args):
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # the client went away, as some tests want

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.may_go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hub():
    with Hub() as running:
        yield running


@pytest.fixture
def hub_model():
    """A model that only the hub has."""
    return KnownModel(
        name="tiny",
        filename="tiny.gguf",
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        size=len(WEIGHTS),
        licence="MIT",
        about="for tests",
        hub=HubFile("someone/tiny-GGUF", "tiny.gguf"),
    )


@pytest.fixture
def index_dir(tmp_path, monkeypatch):
    """A folder of wheels that pip is configured to take everything from."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


@pytest.fixture
def index_model(index_dir, hub_model):
    """The model in three wheels, which import nothing but trouble."""
    wheels = tuple(write_wheel(index_dir, n, part) for n, part in enumerate(PARTS, start=1))
    return replace(hub_model, wheels=wheels, hub=None)


@pytest.fixture
def bert_model(index_dir, hub_model, tmp_path):
    """A model whose wheel holds what its file is made from."""
    weights = tiny_safetensors()
    file = tmp_path / "expected.gguf"
    write_gguf(file, weights, vocabulary(), HEADS)
    gguf = file.read_bytes()
    return replace(
        hub_model,
        sha256=hashlib.sha256(gguf).hexdigest(),
        size=len(gguf),
        purpose="embeddings",
        wheels=(write_wheel(index_dir, 1, weights, vocabulary()),),
        hub=None,
        bert=Bert("tiny_part1/vocab.txt", HEADS),
    )


def write_wheel(folder: Path, number: int, part: bytes, vocabulary: str = "") -> Wheel:
    project = f"tiny-part{number}"
    module = project.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    wheel = Wheel(project, "1.0", "", 0, f"{module}/data.bin")
    path = folder / wheel.filename
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(wheel.member, part)
        archive.writestr(f"{module}/vocab.txt", vocabulary)
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\nRequires-Dist: not-there\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    data = path.read_bytes()
    return replace(wheel, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
