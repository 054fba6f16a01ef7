"""A working folder of one's own, without the variables of whoever runs the tests."""

import os
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

MINIMAL = """\
name: greeter
model: {provider: local}
instructions: {inline: Be brief.}
"""


@dataclass(frozen=True)
class Folder:
    """The working folder, its user's home, and the agent.yaml in it."""

    path: Path
    home: Path

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return path

    def agent(self, more: str = "", name: str = "agent.yaml") -> Path:
        """Write an agent.yaml of three lines and what follows them."""
        return self.write(name, MINIMAL + textwrap.dedent(more))

    def user(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("HOLODECK_", "OPENAI_", "AZURE_", "ANTHROPIC_", "OLLAMA_", "XDG_")):
            monkeypatch.delenv(name)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    return Folder(work, home)
