"""Runs the steps of a composite action and of a workflow as the runner of GitHub does.

Steps with `run` are scripts for bash, whose `env` is expanded and whose outputs come from a file.
Of the actions that they use, only keeping and fetching artifacts matters; the others do nothing.
"""

import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fakes import clean_environment

ROOT = Path(__file__).resolve().parents[2]
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_NAME = re.compile(r"[a-z_]+(?:\.[\w-]+)+")
_PYTHON = """#!/bin/sh
if [ "$4" = install ]; then echo "$@" >> "$CALLS/pip"; else exec {python} "$@"; fi
"""
_GH = '''#!{python}
"""Keeps the comments of one pull request as the API of GitHub would."""
import json, os, pathlib, sys
file = pathlib.Path(os.environ["CALLS"]) / "comments.json"
if file.with_name("read_only").exists():
    sys.exit("gh: Resource not accessible by integration (HTTP 403)\\n100% refused")
comments = json.loads(file.read_text()) if file.exists() else []
args = sys.argv[2:]
method = args[args.index("--method") + 1] if "--method" in args else "GET"
[path] = [one for one in args if one.startswith("repos/")]
if method == "GET":
    assert "env.MARKER" in args[args.index("--jq") + 1]
    for one in comments:
        if one["user"]["type"] == "Bot" and one["body"].startswith(os.environ["MARKER"]):
            print(one["id"])
    sys.exit()
[body] = [pathlib.Path(one[6:]).read_text() for one in args if one.startswith("body=@")]
if method == "POST":
    comments.append({{"id": len(comments) + 1, "user": {{"type": "Bot"}}, "body": body}})
else:
    comments[int(path.rpartition("/")[2]) - 1]["body"] = body
file.write_text(json.dumps(comments))
'''


@dataclass
class Step:
    """A step that ran."""

    name: str
    code: int
    output: str


@dataclass
class Runner:
    """A machine that runs jobs in a checkout."""

    workspace: Path
    home: Path
    artifacts: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.calls = self.home / "calls"
        self.bin = self.home / "bin"
        for folder in (self.calls, self.bin):
            folder.mkdir(parents=True)
        python = str(Path(sys.executable))
        self.write_program("python", _PYTHON.format(python=python))
        self.write_program("gh", _GH.format(python=python))

    def write_program(self, name: str, text: str) -> None:
        file = self.bin / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        found = clean_environment(self.home)
        found["PATH"] = f"{self.bin}:{Path(sys.executable).parent}:{found['PATH']}"
        found["PYTHONPATH"] = str(ROOT / "src")
        return found | {"CALLS": str(self.calls)} | more

    def bash(self, script: str, cwd: Path, env: dict[str, str]) -> Step:
        """Run a script as a step with `shell: bash` does."""
        file = self.home / "step.sh"
        file.write_text(script)
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(file)],
            cwd=cwd,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Step("", ran.returncode, ran.stdout + ran.stderr)

    def run_action(self, inputs: dict[str, str], number: int | None = None) -> list[Step]:
        """Run the action of this repository with these inputs; return its scripts' steps."""
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        unknown = inputs.keys() - action["inputs"].keys()
        assert not unknown, unknown
        temp = self.home / "temp"
        temp.mkdir(exist_ok=True)
        context: dict[str, Any] = {
            "inputs": {name: one["default"] for name, one in action["inputs"].items()} | inputs,
            "runner": {"temp": str(temp), "os": "Linux"},
            "github": {
                "action_path": str(ROOT),
                "token": "a-token",
                "repository": "us/shop",
                "run_id": "7",
                "server_url": "https://github.test",
                "event": {"pull_request": {"number": "" if number is None else str(number)}},
            },
            "steps": {},
        }
        steps: list[Step] = []
        for step in action["runs"]["steps"]:
            has_failed = any(one.code for one in steps)
            if not _is_met(step.get("if", "success()"), context, has_failed):
                continue
            if "run" in step:
                steps.append(self._run_step(step, context, temp))
            elif step["uses"].startswith("actions/upload-artifact@"):
                self._keep(step["with"], context)
        return steps

    def _run_step(self, step: dict[str, Any], context: dict[str, Any], temp: Path) -> Step:
        outputs = self.home / "outputs"
        outputs.write_text("")
        env = {name: _expand(one, context) for name, one in step.get("env", {}).items()}
        env |= {
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_STEP_SUMMARY": str(self.home / "summary.md"),
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(temp),
        }
        cwd = self.workspace / _expand(step.get("working-directory", "."), context)
        ran = self.bash(step["run"], cwd, env)
        ran.name = step["name"]
        found = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
        context["steps"][step.get("id", "")] = {"outputs": found}
        return ran

    def _keep(self, settings: dict[str, str], context: dict[str, Any]) -> None:
        name = _expand(settings["name"], context)
        kept = self.home / "artifacts" / name
        shutil.copytree(_expand(settings["path"], context), kept, dirs_exist_ok=True)
        self.artifacts[name] = kept

    def run_job(self, job: dict[str, Any], number: int | None = None) -> list[Step]:
        """Run a job of a workflow, once for each shard of its matrix."""
        shards = job.get("strategy", {}).get("matrix", {}).get("shard", [""])
        found: list[Step] = []
        for shard in shards:
            context = {"matrix": {"shard": shard}, "secrets": {"OPENAI_API_KEY": ""}}
            for step in job["steps"]:
                settings = {
                    key: _expand(str(one), context) for key, one in step.get("with", {}).items()
                }
                if step["uses"].startswith("actions/download-artifact@"):
                    self._fetch(settings)
                elif not step["uses"].startswith("actions/checkout@"):
                    found += self.run_action(settings, number)
        return found

    def _fetch(self, settings: dict[str, str]) -> None:
        prefix = settings["pattern"].removesuffix("*")
        for name, kept in self.artifacts.items():
            if name.startswith(prefix):
                shutil.copytree(kept, self.workspace / settings["path"] / name)


def _lookup(name: str, context: dict[str, Any]) -> str:
    value: Any = context
    for part in name.split("."):
        value = value.get(part, "")
        if value == "":
            return ""
    return str(value)


def _expand(text: str, context: dict[str, Any]) -> str:
    return _EXPRESSION.sub(lambda match: _lookup(match[1], context), text)


def _is_met(condition: str, context: dict[str, Any], has_failed: bool) -> bool:
    """Whether a step runs; without `always()`, only if none has failed."""
    is_always = "always()" in condition
    text = condition.replace("always()", "True").replace("success()", "True")
    text = _NAME.sub(lambda match: repr(_lookup(match[0], context)), text)
    is_true = eval(text.replace("&&", " and ").replace("||", " or "))
    return bool(is_true) and (is_always or not has_failed)
