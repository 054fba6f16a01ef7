"""Every example of the README and the guides runs.

A comment before a block says what becomes of it: `file: NAME` writes it into the document's own
folder, `run: exit N` runs its shell lines there, `run: output` is part of what the block before it
printed, `run: python` runs it, `run: model` runs it on the embedded model. A block without a
comment shows something that cannot be run here and is listed.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes import clean_environment
from support.cli import readable
from support.nursery import NURSERY, PYTESTS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- (?P<what>file|run): (?P<how>[^\n]*?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FORKED = {"holodeck": NURSERY, "pytest": PYTESTS}
"""Programs for which no new Python has to start."""
PLAIN = re.compile(
    r"(?P<call>(?:holodeck|pytest)\b(?!.*--watch)(?:[\w ./:,=+%-]|'[^']*'|\"[^\"$`]*\")*)"
    r"(?:\|(?P<reader>[^|].*)|\s#.*)?"
)
"""A line that calls one of them and asks nothing of the shell but to read what it says."""
NEEDS_THE_REST = re.compile(r"(?m)^(cd|export|if|for|while|trap|\w+=|\s)|\\$|<<|&$")
"""A line that means something only with those around it."""
NOT_RUN = {"README.md": 2, "docs/architecture.md": 1}
"""Blocks without a comment: installing, and drawings."""


@dataclass(frozen=True)
class Block:
    what: str | None
    how: str | None
    kind: str
    text: str


def blocks_of(document):
    return [Block(**match.groupdict()) for match in BLOCK.finditer(document.read_text())]


def name_of(document):
    return str(document.relative_to(ROOT))


def play(document, folder, *, with_model):
    """Write and run the blocks of a document in order; stop at those that are not wanted."""
    printed = ""
    for block in blocks_of(document):
        if block.what == "file":
            (folder / block.how).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.how).write_text(block.text)
        elif block.how == "output":
            assert with_model or block.text in printed
        elif block.what == "run" and (block.how == "model") == with_model:
            printed = run(block, folder)


def run(block, folder):
    """Run a block and return what its last command printed."""
    environment = clean_environment(folder)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    # the code and the plugin of this checkout, whatever is installed
    environment["PYTHONPATH"] = str(ROOT / "src")
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment["PYTEST_ADDOPTS"] = "-p holodeck.pytest_plugin -p pytest_asyncio.plugin"
    expected = int(block.how.removeprefix("exit ")) if block.how.startswith("exit") else 0
    for command in commands_of(block):
        code, said = done(command, folder, environment)
        if code:
            break
    assert code == expected, f"{command}\n{said}"
    return said


def commands_of(block):
    """What is run one by one: lines that a shell need not see together, else all as one."""
    if block.how == "python":
        return [("python", block.text)]
    if NEEDS_THE_REST.search(block.text):
        return [("sh", block.text)]
    lines = [line for line in block.text.splitlines() if line.partition("#")[0].strip()]
    return [("plain" if PLAIN.fullmatch(line) else "sh", line) for line in lines]


def done(command, folder, environment):
    """The exit code of a command and all that it wrote."""
    how, text = command
    if how == "plain":
        return forked(PLAIN.fullmatch(text), folder, environment)
    argv = [sys.executable, "-c", text] if how == "python" else ["sh", "-ec", text]
    return ended(argv, folder, environment)


def forked(line, folder, environment):
    program, *args = shlex.split(line["call"])
    code, *streams = FORKED[program].run(args, cwd=folder, env=environment, stdin=None, timeout=120)
    said, complained = map(readable, streams)
    if line["reader"]:
        code, said = ended(["sh", "-ec", line["reader"]], folder, environment, said)
    return code, f"{said}\n{complained}"


def ended(argv, folder, environment, given=None):
    ran = subprocess.run(
        argv, cwd=folder, env=environment, input=given, capture_output=True, text=True, check=False
    )
    return ran.returncode, f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_the_examples_of_a_document_do_what_it_says(document, tmp_path):
    play(document, tmp_path, with_model=False)


@pytest.mark.model
@pytest.mark.parametrize(
    "document",
    [one for one in DOCUMENTS if any(block.how == "model" for block in blocks_of(one))],
    ids=name_of,
)
def test_the_examples_on_the_embedded_model_do_what_the_document_says(document, tmp_path):
    play(document, tmp_path, with_model=True)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_example_escapes_being_run(document):
    unmarked = [block for block in blocks_of(document) if block.what is None]

    assert len(unmarked) == NOT_RUN.get(name_of(document), 0)


def test_the_commands_of_the_readme_work_as_written_in_a_new_shell(tmp_path):
    """With stand-ins for what is installed; only the path is what it would be."""
    home = tmp_path / ".venv" / "bin"
    scripts = {
        "scripts/install": "python3 -m venv --without-pip .venv && cp command .venv/bin/holodeck",
        "scripts/check": "exit 0",
        "command": 'echo "holodeck $*" >> called',
    }
    for name, text in scripts.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    lines = "".join(block.text for block in blocks_of(ROOT / "README.md") if block.kind == "sh")
    environment = clean_environment(tmp_path)
    python = Path(sys.executable).resolve().parent
    environment["PATH"] = f"{python}{os.pathsep}/usr/bin{os.pathsep}/bin"

    code, said = ended(["sh", "-ec", lines], tmp_path, environment)

    assert (code, home.is_dir()) == (0, True), said
    assert (tmp_path / "called").read_text().splitlines() == [
        line.rpartition("&& ")[2] for line in lines.splitlines() if "holodeck " in line
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_between_documents_leads_somewhere(document):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())

    assert [link for link in links if not (document.parent / link).exists()] == []
