"""Every example of the README and the guides runs.

The comment before a block says how it is tested. All blocks of a document share a folder.

- `file: NAME` writes the block to a file.
- `run: exit N` runs the shell lines and expects the exit code.
- `run: output` expects the text in the output of the block before it.
- `run: python` runs the block as a program.
- `run: model` runs the shell lines in the tests of the embedded model.

NOT_RUN counts the blocks without a comment, which cannot be run here.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes import FakeOpenAI, clean_environment
from support.cli import readable
from support.desk_service import desk_service
from support.nursery import PROGRAMS, RUN_LIMIT_S, programs_folder
from support.scripted_models import attacker_model, helper, kind_judge, librarian, orders_model

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- (?P<what>file|run): (?P<how>[^\n]*?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SIMPLE_COMMAND = re.compile(
    r"(?P<call>(?:holodeck|pytest)\b(?!.*--watch)(?:[\w ./:,=+%-]|'[^']*'|\"[^\"$`]*\")*)"
    r"(?:\|(?P<pipe>[^|].*)|\s#.*)?"
)
"""A call of one of these programs, without shell syntax except a final pipe."""
MULTILINE = re.compile(r"(?m)^(cd|export|if|for|while|trap|\w+=|\s)|\\$|<<|&$")
"""Shell syntax that connects a line with those around it."""
NOT_RUN = {
    "README.md": 2,
    "docs/guide/ci.md": 1,
    "docs/guide/compare.md": 1,
    "docs/guide/frameworks/claude-agent-sdk.md": 2,
    "docs/guide/frameworks/google-adk.md": 2,
    "docs/guide/scale.md": 1,
    "docs/index.md": 1,
}
"""Blocks without a comment: installation, diagrams, and what is not installed or not here."""


SCRIPTED = {
    **dict.fromkeys(
        ("README.md", "docs/guide/recipes.md", "docs/guide/test-your-agent.md"), orders_model
    ),
    "docs/guide/knowledge.md": librarian,
    "docs/guide/metrics.md": kind_judge,
    "docs/guide/recordings.md": helper,
    "docs/guide/red-teaming.md": attacker_model,
}
"""The model of a document's agents and judges, in place of OpenAI's."""
SERVICE = "docs/guide/http.md"
"""The document whose agents are a service."""


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


def run_document(document, folder, *, with_model, variables=None):
    """Write the files of a document, and run its examples that need a model, or the others."""
    output = ""
    for block in blocks_of(document):
        if block.what == "file":
            (folder / block.how).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.how).write_text(block.text)
        elif block.how == "output":
            assert with_model or block.text in output
        elif block.what == "run" and (block.how == "model") == with_model:
            output = run_block(block, folder, variables or {})


def run_block(block, folder, variables):
    """Run a block and return the output of its last command."""
    environment = clean_environment(folder, variables)
    folders = [programs_folder(), Path(sys.executable).parent, environment["PATH"]]
    environment["PATH"] = os.pathsep.join(map(str, folders))
    # use the code and the plugin of this checkout, whatever is installed
    environment["PYTHONPATH"] = str(ROOT / "src")
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment["PYTEST_ADDOPTS"] = "-p holodeck.pytest_plugin -p pytest_asyncio.plugin"
    expected = int(block.how.removeprefix("exit ")) if block.how.startswith("exit") else 0
    for command in commands_of(block):
        code, output = run_command(command, folder, environment)
        if code:
            break
    assert code == expected, f"{command}\n{output}"
    return output


def commands_of(block):
    """Return kind and text of each command: a line each, or the whole block if lines connect."""
    if block.how == "python":
        return [("python", block.text)]
    if MULTILINE.search(block.text):
        return [("sh", block.text)]
    lines = [line for line in block.text.splitlines() if line.partition("#")[0].strip()]
    return [("simple" if SIMPLE_COMMAND.fullmatch(line) else "sh", line) for line in lines]


def run_command(command, folder, environment):
    """Return the exit code and the output of a command, stdout and stderr together."""
    kind, text = command
    if kind == "sh":
        return run_shell(text, folder, environment)
    line = SIMPLE_COMMAND.fullmatch(text) if kind == "simple" else None
    program, *args = ["holodeck", "-c", text] if line is None else shlex.split(line["call"])
    code, *streams = PROGRAMS[program].run(
        args, cwd=folder, env=environment, stdin=None, timeout=RUN_LIMIT_S
    )
    stdout, stderr = map(readable, streams)
    if line is not None and line["pipe"]:
        code, stdout = run_shell(line["pipe"], folder, environment, stdout)
    return code, f"{stdout}\n{stderr}"


def run_shell(text, folder, environment, stdin=""):
    process = subprocess.run(
        ["sh", "-ec", text],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode, f"{process.stdout}\n{process.stderr}"


@pytest.mark.parametrize("name", sorted(SCRIPTED))
def test_the_examples_on_a_scripted_model_do_what_the_document_says(name, tmp_path):
    with FakeOpenAI(SCRIPTED[name]) as model:
        variables = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        variables |= {"HOLODECK_CACHE_DIR": str(tmp_path / "cache")}
        run_document(ROOT / name, tmp_path, with_model=False, variables=variables)


def test_the_examples_on_a_service_do_what_the_document_says(tmp_path):
    with desk_service(tmp_path) as url:
        run_document(ROOT / SERVICE, tmp_path, with_model=False, variables={"DESK_URL": url})


@pytest.mark.parametrize(
    "document",
    [one for one in DOCUMENTS if name_of(one) not in {*SCRIPTED, SERVICE}],
    ids=name_of,
)
def test_the_examples_of_a_document_do_what_it_says(document, tmp_path):
    run_document(document, tmp_path, with_model=False)


@pytest.mark.model
@pytest.mark.parametrize(
    "document",
    [
        document
        for document in DOCUMENTS
        if any(block.how == "model" for block in blocks_of(document))
    ],
    ids=name_of,
)
def test_the_examples_on_the_embedded_model_do_what_the_document_says(document, tmp_path):
    run_document(document, tmp_path, with_model=True)


def test_no_example_escapes_being_run():
    unmarked = {
        name_of(document): sum(block.what is None for block in blocks_of(document))
        for document in DOCUMENTS
    }

    assert {name: count for name, count in unmarked.items() if count} == NOT_RUN


def test_the_commands_of_the_readme_work_as_written_in_a_new_shell(tmp_path):
    """Scripts and command are stand-ins that record their calls."""
    bin_folder = tmp_path / ".venv" / "bin"
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

    code, output = run_shell(lines, tmp_path, environment)

    assert (code, bin_folder.is_dir()) == (0, True), output
    assert (tmp_path / "called").read_text().splitlines() == [
        line.rpartition("&& ")[2] for line in lines.splitlines() if "holodeck " in line
    ]


def test_only_the_readme_says_how_to_install_holodeck():
    """A release changes one place; `scripts/docs` copies it to the home page."""
    files = [*DOCUMENTS, *(ROOT / "examples").rglob("*.yaml"), *(ROOT / "examples").rglob("*.md")]
    elsewhere = [
        f"{name_of(file)}: {line}"
        for file in files
        for line in file.read_text().splitlines()
        if re.search(r"install\b.*holodeck-harness", line)
    ]

    assert elsewhere == []


def test_every_link_between_documents_leads_somewhere():
    broken = [
        f"{name_of(document)}: {link}"
        for document in DOCUMENTS
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())
        if not (document.parent / link).exists()
    ]

    assert broken == []
