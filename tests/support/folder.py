"""A folder with an agent.yaml that talks to the fake server."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.cli import Environment, Ran, run_cli
from support.server import FakeOpenAI


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write the texts to files of these names, and make the folders that they are in."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@dataclass(frozen=True)
class AgentFolder:
    """The folder, and the server that its agent calls."""

    path: Path
    server: FakeOpenAI

    def write_agent(self, **overrides: Any) -> Path:
        """Write agent.yaml: one passing case, with top-level keys replaced (None removes one)."""
        agent = self.plain_agent() | overrides
        kept = {key: value for key, value in agent.items() if value is not None}
        return self.write("agent.yaml", yaml.safe_dump(kept, sort_keys=False, allow_unicode=True))

    def plain_agent(self) -> dict[str, Any]:
        """An agent whose only case passes against a server without a script."""
        return {
            "name": "greeter",
            "model": self.model(),
            "instructions": {"inline": "Do what the user says."},
            "test_cases": [case("says-hello", "Say hello please", contains="hello")],
        }

    def model(self, **overrides: Any) -> dict[str, Any]:
        """The model part, pointed at the server."""
        return {
            "provider": "openai",
            "name": "fake",
            "endpoint": self.server.url,
            "api_key": "not-a-real-key",
        } | overrides

    def write(self, name: str, text: str | bytes) -> Path:
        """Write a file of the folder, making its parents."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def run(self, *args: str | Path, env: Environment | None = None, timeout: float = 180.0) -> Ran:
        """Run `holodeck args...` in the folder."""
        return run_cli(*args, cwd=self.path, env=env, timeout=timeout)


def case(name: str, said: str, *, contains: str | None = None, **fields: Any) -> dict[str, Any]:
    """One test case, with a `contains` check where a text is given."""
    checks = [{"type": "standard", "metric": "contains", "value": contains}]
    own = {"evaluations": checks} if contains is not None else {}
    return {"name": name, "input": said} | own | fields
