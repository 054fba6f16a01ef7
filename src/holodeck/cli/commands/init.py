"""`holodeck init`: writes the first agent.yaml."""

import asyncio
import json
import os
import shlex
from collections.abc import Iterable
from importlib.resources import files as files_of
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from holodeck import errors
from holodeck.cli.context import CliContext
from holodeck.config.cases.suite_files import is_yaml
from holodeck.errors import BackendError, BackendInitError, ConfigError, ReportError
from holodeck.lib.ui.live import echo, protected_streams

if TYPE_CHECKING:
    from holodeck.lib.backends.base import AgentDescription, ExecutionResult
    from holodeck.lib.secrets.redact import Redactor

_MAX_TOOLS = 50
_SCHEMA = ".holodeck/{kind}.schema.json"
"""What the first line of a file names, for editors."""
_MODULE = "my_agent"


class _Example(NamedTuple):
    """Files that run, of which the templates are beside this package."""

    kind: str
    file: Path
    yaml: str
    code: str
    options: str = ""


_AGENT = _Example("agent", Path("agent.yaml"), "agent.yaml", "agent.py.txt")
_SCENARIOS = _Example(
    "suite",
    Path("scenarios", "example.yaml"),
    "scenarios.yaml",
    "adapter.py.txt",
    f" --adapter {_MODULE}:MyAgent",
)
_WORKFLOW_FILE = Path(".github/workflows/holodeck.yml")
_ANY_VALUE = "{regex: '[\\s\\S]+'} # any value; write the right one"
_FILL_IN = "Fill in 'input' and 'value' of each test case, and remove its 'skip'."
_CONFIRM = (
    "Confirm what the agent did, or correct it, and remove the 'todo'; until then, it cannot pass."
)
_TODO = "confirm the tool calls and the answer, or correct them, then remove this line"


@click.command()
@click.argument("agent_config", default="agent.yaml", type=click.Path(path_type=Path))
@click.option("--from", "target", metavar="MODULE:OBJECT", help="The agent that you have.")
@click.option("--ask", "question", metavar="INPUT", help="Ask it this, and write what it did.")
@click.option("--suite", is_flag=True, help="Write a file of scenarios and an adapter instead.")
@click.option("--ci", is_flag=True, help="Write a workflow that replays, and records at night.")
@click.pass_context
def init(
    context: click.Context,
    agent_config: Path,
    target: str | None,
    question: str | None,
    suite: bool,
    ci: bool,
) -> None:
    """Write a first AGENT_CONFIG, and never overwrite a file.

    With --from, holodeck imports the agent and writes three test cases for you to fill in; with
    --ask, it calls the agent once, and writes its tool calls and its answer as a test case for you
    to confirm. Without --from, holodeck writes a small example that runs. With --suite, the example
    is a file of scenarios for `holodeck test --adapter` (scenarios/example.yaml by default) and an
    adapter in Python. With --ci, it is a workflow of GitHub Actions for an AGENT_CONFIG that is
    there: each push replays its recordings, and each night records them again. The first line of
    the file names its schema for editors, which is written to .holodeck unless it is there.
    """
    if question is not None and (target is None or not question.strip()):
        raise click.UsageError("--ask needs a text, and with --from the agent to ask")
    if ci and (target is not None or suite):
        raise click.UsageError("--ci writes a workflow; remove it, or --from and --suite")
    if suite and target is not None:
        raise click.UsageError("--suite writes an example; remove it or --from")
    cli_context = context.ensure_object(CliContext)
    if ci:
        _write_workflow(agent_config, cli_context)
        return
    example = _SCENARIOS if suite else _AGENT
    is_default = context.get_parameter_source("agent_config") is ParameterSource.DEFAULT
    file = example.file if is_default else agent_config
    if not is_yaml(file):
        raise click.UsageError(f"{str(file)!r} is no YAML file; name it {example.file}, say")
    folder = Path() if suite else file.parent
    command = f"holodeck test {shlex.quote(str(file))}{example.options}"
    if target is None:
        files = {file: _template(example.yaml), folder / f"{_MODULE}.py": _template(example.code)}
        _require_new(files)
        _write_files(files, example.kind, folder, command, cli_context)
        echo(cli_context.clean(f"Next: {command}"))
        return
    _require_new([file])
    found, answer = _load(target, file.absolute().parent, question)
    text = _render(target, found, question, answer, cli_context.redactor)
    _write_files({file: text}, example.kind, folder, command, cli_context)
    echo(cli_context.clean(f"Found {found}"))
    to_do = "fill in the three test cases" if question is None else "confirm the test case"
    echo(cli_context.clean(f"Next: {to_do}, then run: {command}"))


def _template(name: str) -> str:
    return files_of("holodeck.cli").joinpath("templates", name).read_text("utf-8")


def _write_files(
    files: "dict[Path, str]", kind: str, folder: Path, command: str, context: CliContext
) -> None:
    """Write the files, the first of which is YAML of a kind, and its schema into a folder.

    `command` runs the first file.
    """
    from holodeck.config.schema import schema_text

    first = next(iter(files))
    schema = folder / _SCHEMA.format(kind=kind)
    place = Path(os.path.relpath(schema, first.parent)).as_posix()
    files[first] = f"# yaml-language-server: $schema={place}\n{files[first]}"
    if not schema.exists():
        files[schema] = schema_text(kind)
    for file, text in files.items():
        _write(file, text.replace("holodeck test FILE", command))
    *names, last = map(str, files)
    echo(context.clean(f"Wrote {', '.join(names)} and {last}" if names else f"Wrote {last}"))


def _write_workflow(agent_config: Path, context: CliContext) -> None:
    """Write the workflow that tests an agent with its recordings."""
    if not agent_config.is_file():
        raise errors.FileNotFoundError(
            str(agent_config), "is not there; write it with holodeck init"
        )
    _require_new([_WORKFLOW_FILE])
    agent = shlex.quote(str(agent_config))
    _write(_WORKFLOW_FILE, _template("workflow.yml").replace("AGENT", agent))
    echo(context.clean(f"Wrote {_WORKFLOW_FILE}"))
    echo(context.clean(f"Next: holodeck test {agent} --record, then commit both"))


def _require_new(paths: Iterable[Path]) -> None:
    """Raise ConfigError if any of the files exists."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise ConfigError(str(path), "exists and is not overwritten; name another file")


def _load(
    target: str, folder: Path, question: str | None
) -> "tuple[AgentDescription, ExecutionResult | None]":
    """Return what the agent is, and what it did if it was asked. Raises HoloDeckError."""
    from holodeck.cli.commands.validate import describe_agent

    if ":" not in target:
        raise ConfigError("--from", f"found {target!r}; expected 'module:object', say 'app:agent'")
    try:
        if question is None:
            return describe_agent(target, folder), None
        return _ask(target, folder, question)
    except ConfigError as error:
        raise ConfigError("--from", error.message) from error


def _ask(target: str, folder: Path, question: str) -> "tuple[AgentDescription, ExecutionResult]":
    """Return what the agent is, and what it did in one turn, as it or the tap tells it."""
    from holodeck.lib.backends.python.backend import CallableBackend
    from holodeck.lib.backends.tapped_backend import TappedPythonBackend
    from holodeck.lib.processes.process_exit import process_exit_forbidden
    from holodeck.lib.user_code.raised import with_location

    backend = CallableBackend(target, folder)
    tapped = TappedPythonBackend(backend)

    async def ask() -> "tuple[AgentDescription, ExecutionResult]":
        try:
            await tapped.initialize()
            return backend.describe(), await tapped.invoke_once(question)
        finally:
            await tapped.teardown()

    try:
        with protected_streams(), process_exit_forbidden():
            description, answer = asyncio.run(ask())
    except (BackendInitError, ConfigError):
        raise
    except Exception as error:
        raise BackendError(f"the agent failed: {with_location(error)}") from error
    if answer.is_error:
        raise BackendError(f"the agent failed: {answer.error_reason}")
    if answer.pending_approvals:
        names = ", ".join(call["name"] for call in answer.pending_approvals)
        raise BackendError(
            f"the agent waits for an approval of {names}; ask it something else, or write a test"
            " case with 'expect_approval'"
        )
    return description, answer


def _render(
    target: str,
    agent: "AgentDescription",
    question: str | None,
    answer: "ExecutionResult | None",
    redactor: "Redactor",
) -> str:
    """Return an agent.yaml with what the agent did, or else with test cases to fill in."""
    is_tapped = answer is not None and "tool_calls" in answer.tapped
    backend = _text(target)
    if is_tapped:
        backend = f"{{type: python, target: {backend}, tap: true}}"
    head = _template("head.yaml.txt").format(
        what_to_do=_FILL_IN if answer is None else _CONFIRM,
        name=_text(agent.name or target.partition(":")[0].rpartition(".")[2]),
        backend=backend,
        kind=agent.kind,
        tools=_comment(agent.tools, is_tapped=is_tapped),
    )
    if question is None or answer is None:
        return head + _cases_to_fill_in(agent)
    return head + _observed_case(question, answer, redactor)


def _observed_case(question: str, answer: "ExecutionResult", redactor: "Redactor") -> str:
    """Return a test case that expects what the agent did."""
    from holodeck.lib.case_import.case import LoggedCall, LoggedTurn
    from holodeck.lib.case_import.suite_text import redact_case, render_turn
    from holodeck.lib.test_runner.observe import pair_tool_calls

    calls = [
        LoggedCall(
            invocation.name,
            None if call.get("error") else call.get("arguments"),
            json.dumps(invocation.result, ensure_ascii=False),
        )
        for call, invocation in zip(
            answer.tool_calls or (),
            pair_tool_calls(answer.tool_calls or (), answer.tool_results),
            strict=True,
        )
    ]
    turn = redact_case(LoggedTurn(question, answer.response, calls), redactor.redact)
    return render_turn(turn, _TODO, knows_calls=answer.tool_calls is not None)


def _cases_to_fill_in(agent: "AgentDescription") -> str:
    """Return three test cases, which are skipped as long as they say so."""
    tools = agent.tools or []

    def expects(tool: str) -> str:
        needed = agent.required_arguments.get(tool)
        if not needed:
            return f"\n    expected_tools: [{_text(tool)}]"
        lines = [f"\n          {_text(name)}: {_ANY_VALUE}" for name in needed]
        return f"\n    expected_tools:\n      - name: {_text(tool)}\n        args:{''.join(lines)}"

    expected = [
        ("uses a tool", expects(tools[0]) if tools else ""),
        ("uses the right tool", expects(tools[-1]) if tools else ""),
        ("needs no tool", "\n    expected_tools: [] # no tool may be called" if tools else ""),
    ]
    if not tools:
        names = ("a common question", "a difficult question", "a question to decline")
        expected = [(name, "") for name in names]
    case = _template("case.yaml.txt")
    return "\n".join(case.format(name=name, expected=part) for name, part in expected)


def _comment(tools: list[str] | None, *, is_tapped: bool) -> str:
    """Return a comment on the tools of the agent."""
    if tools is None and is_tapped:
        return "# 'tap: true' shows the tool calls: they are in the requests to the model."
    if tools is None:
        return (
            "# The agent's tools are unknown. To check its tool calls with 'expected_tools', let it"
            "\n# return {'response': …, 'tool_calls': [{'name': …, 'arguments': {…}}]}, or let its"
            "\n# client find the tap: {type: python, target: …, tap: true}."
        )
    if not tools:
        return "# The agent has no tools."
    listed = [f"#   {_text(name)}" for name in tools[:_MAX_TOOLS]]
    more = len(tools) - _MAX_TOOLS
    return "\n".join(["# The agent's tools:", *listed, *([f"#   and {more} more"] * (more > 0))])


def _text(text: str) -> str:
    """Return a text as YAML, on a single line."""
    return json.dumps(text, ensure_ascii=False)


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise ReportError(f"{file} cannot be written: {error.strerror}") from error
