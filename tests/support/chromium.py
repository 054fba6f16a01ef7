"""A real Chromium without a window, driven over its DevTools protocol."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from websockets.sync.client import ClientConnection, connect

PROGRAM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    PROGRAM is None, reason="needs Chromium: apt-get install chromium"
)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-quic",
    "--disable-dev-shm-usage", "--remote-debugging-port=0", "--force-color-profile=srgb",
)  # fmt: skip
SECONDS = 60
"""How long to wait for anything, on a machine however slow."""
REPORT_IS_READY = "document.body?.dataset.ready"
IS_LOADED = "location.href !== 'about:blank' && document.readyState === 'complete'"
"""Expressions that are true once a page can be used: one of a report, and any other."""


class Browser:
    """A running Chromium."""

    def __init__(self, endpoint: str) -> None:
        self._http = f"http://{endpoint}"

    @contextmanager
    def open(
        self,
        url: str,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        ready: str = REPORT_IS_READY,
    ) -> "Iterator[Tab]":
        """A tab that shows the page, from the moment when the expression `ready` is true."""
        with connect(self._browser_socket(), max_size=None, proxy=None) as socket:
            browser = Tab(socket)
            target = browser.send("Target.createTarget", url="about:blank")["targetId"]
            session = browser.send("Target.attachToTarget", targetId=target, flatten=True)
            tab = Tab(socket, session["sessionId"])
            for domain in ("Page", "Runtime", "Log", "Network"):
                tab.send(f"{domain}.enable")
            tab.show_as(width, height, dark)
            tab.go(url, ready)
            yield tab
            browser.send("Target.closeTarget", targetId=target)

    def _browser_socket(self) -> str:
        with urlopen(f"{self._http}/json/version", timeout=SECONDS) as response:
            return str(json.load(response)["webSocketDebuggerUrl"])


class Tab:
    """A page in the browser; `problems` are the errors and refusals that its console shows."""

    def __init__(self, socket: ClientConnection, session: str | None = None) -> None:
        self._socket = socket
        self._session = session
        self._number = 0
        self.problems: list[str] = []
        self.requests: list[str] = []
        """URLs of everything that the page asked for."""

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            found = json.loads(self._socket.recv(timeout=SECONDS))
            if found.get("id") == self._number:
                assert "error" not in found, found["error"]
                return dict(found["result"])
            self._note(found)

    def _note(self, event: dict[str, Any]) -> None:
        facts = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.problems.append(str(details.get("exception", details).get("description", details)))
        if event["method"] == "Log.entryAdded" and facts["entry"]["level"] in {"error", "warning"}:
            self.problems.append(facts["entry"]["text"])
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])

    def show_as(self, width: int, height: int = 800, dark: bool = False) -> None:
        """Set the size of the window and the color scheme that the reader prefers."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str, ready: str = REPORT_IS_READY) -> None:
        """Open a page, and wait until the expression `ready` is true."""
        self.send("Page.navigate", url=url)
        self.wait(ready)

    def js(self, expression: str) -> Any:
        """Return the value of an expression."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.js(expression)):
            assert time.monotonic() < deadline, f"{expression} did not become true"
            time.sleep(0.02)
        return value

    def text(self, selector: str) -> str:
        """The text that readers see of an element."""
        return str(self.js(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str) -> None:
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str) -> None:
        """Press a key, as a keyboard does."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def write(self, text: str) -> None:
        """Write into the field that has the focus."""
        self.send("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def violations(self) -> list[str]:
        """What axe finds that keeps people from using the page; skip where axe is missing."""
        axe = pytest.importorskip("axe_core_python", reason="needs axe-core-python")
        self.js(files(axe).joinpath("axe.min.js").read_text() + ";0")
        found: list[str] = self.js(
            "axe.run().then(found => found.violations.map("
            "one => one.id + ': ' + one.nodes.map(node => node.html).join(' ')))"
        )
        return found

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF")["data"])


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Chromium, with an empty profile of its own."""
    assert PROGRAM is not None
    # It may write into its profile until its last process has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Browser(_endpoint(Path(profile) / "DevToolsActivePort", process))
        finally:
            process.terminate()
            process.wait(SECONDS)


def _endpoint(file: Path, process: "subprocess.Popen[bytes]") -> str:
    """Wait until the browser says where it listens."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if file.exists() and "\n" in (text := file.read_text()):
            return f"127.0.0.1:{text.splitlines()[0]}"
        assert process.poll() is None, "Chromium ended"
        time.sleep(0.02)
    raise TimeoutError("Chromium does not listen")
