"""`holodeck init`: writes the first agent.yaml."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from holodeck.cli.context import CliContext
from holodeck.lib.ui.live import echo

if TYPE_CHECKING:
    from holodeck.lib.backends.base import AgentDescription

_MAX_TOOLS = 50
_AGENT_MODULE = "my_agent"
_AGENT_CODE = '''\
"""The agent: any Python code that answers a message."""

HOURS = {"monday": "9 to 17", "saturday": "10 to 14"}


def answer(message: str) -> dict[str, object]:
    """Answer, and report the tools that were called."""
    day = next((day for day in HOURS if day in message.lower()), None)
    if day is None:
        return {"response": "Which day do you mean?", "tool_calls": []}
    call = {"name": "opening_hours", "arguments": {"day": day}, "result": HOURS[day]}
    return {"response": f"We are open from {HOURS[day]}.", "tool_calls": [call]}
'''
_EXAMPLE = f"""\
# Run the test cases with: holodeck test FILE
name: my agent
backend: "{_AGENT_MODULE}:answer" # your code; or remove this line and let holodeck call a model:
# model: {{provider: openai, name: gpt-4o-mini}} # or {{provider: local}}, which needs no key
# instructions: {{inline: You tell the opening hours.}}

test_cases:
  - name: looks the day up
    input: When do you open on Saturday?
    expected_tools:
      - name: opening_hours
        args: {{day: saturday}}
    evaluations:
      - metric: contains
        value: 10 to 14
      - metric: latency
        max_ms: 10000

  - name: asks for the day
    input: When do you open?
    expected_tools: [] # no tool may be called
    evaluations:
      - metric: contains
        value: which day
        ignore_case: true
"""
_SUITE_FILE = Path("scenarios", "example.yaml")
_ADAPTER_CODE = '''\
"""The adapter: calls your agent, and reports its answer and its tool calls."""

from holodeck.suite import AgentResult, ToolCall

HOURS = {"monday": "9 to 17", "saturday": "10 to 14"}


class MyAgent:
    """Replace the body of `run` by a call of your agent."""

    def run(self, input: str, context: dict[str, object] | None = None) -> AgentResult:
        day = next((day for day in HOURS if day in input.lower()), None)
        if day is None:
            return AgentResult(output="Which day do you mean?", tool_calls=[])
        call = ToolCall(name="opening_hours", arguments={"day": day}, result=HOURS[day])
        return AgentResult(output=f"We are open from {HOURS[day]}.", tool_calls=[call])
'''
_SCENARIOS = """\
# Run the scenarios with: holodeck test FILE
suite:
  name: opening hours
  config:
    default_timeout: 30 # seconds that one call of the agent may take
    retries: 1 # after an error, not after a failed scenario

scenarios:
  - name: looks the day up
    input: When do you open on Saturday?
    expected_output: 10 to 14
    expected_tools: [opening_hours]
    expected_tool_args:
      opening_hours: {day: saturday}
    tags: [tools]

  - name: asks for the day
    input: When do you open?
    expected_tools: [] # no tool may be called
    scorers: [passfail, regex]
    metadata: {regex_pattern: "(?i)which day"}
"""
_HEAD = """\
# Fill in every 'input' and 'value', or remove the test case; until then, nothing runs.
# Then run the test cases with: holodeck test FILE
name: {name}
backend: {backend} # {kind}

{tools}
test_cases:
"""
_CASE = """\
  - name: {name}
    input: # what the user says{expected}
    evaluations:
      - metric: contains
        value: # words that a right response contains
      - metric: latency
        max_ms: 60000
"""


@click.command()
@click.argument("agent_config", default="agent.yaml", type=click.Path(path_type=Path))
@click.option("--from", "target", metavar="MODULE:OBJECT", help="The agent that you have.")
@click.option("--suite", is_flag=True, help="Write a file of scenarios and an adapter instead.")
@click.pass_context
def init(context: click.Context, agent_config: Path, target: str | None, suite: bool) -> None:
    """Write a first AGENT_CONFIG, and never overwrite a file.

    With --from, holodeck imports the agent and writes three test cases for you to fill in. Without
    it, holodeck writes a small example that runs. With --suite, the example is a file of scenarios
    for `holodeck test --adapter` (scenarios/example.yaml by default) and an adapter in Python.
    """
    from holodeck.config.cases.suite_files import is_yaml

    if suite:
        if target is not None:
            raise click.UsageError("--suite writes an example; remove it or --from")
        is_default = context.get_parameter_source("agent_config") is ParameterSource.DEFAULT
        _write_suite(_SUITE_FILE if is_default else agent_config, context)
        return
    if not is_yaml(agent_config):
        raise click.UsageError(f"{str(agent_config)!r} is no YAML file; name it agent.yaml, say")
    files = {agent_config: _EXAMPLE}
    found = None
    if target is None:
        files[agent_config.parent / f"{_AGENT_MODULE}.py"] = _AGENT_CODE
    _require_new(files)
    if target is not None:
        found = _load(target, agent_config.absolute().parent)
        files = {agent_config: render_cases(target, found)}
    shown = shlex.quote(str(agent_config))
    for file, text in files.items():
        _write(file, text.replace("holodeck test FILE", f"holodeck test {shown}"))
    cli_context = context.ensure_object(CliContext)
    echo(cli_context.clean(f"Wrote {' and '.join(map(str, files))}"))
    if found is None:
        echo(cli_context.clean(f"Next: holodeck test {shown}"))
        return
    echo(cli_context.clean(f"Found {found}"))
    echo(cli_context.clean(f"Next: fill in the three test cases, then run: holodeck test {shown}"))


def _write_suite(file: Path, context: click.Context) -> None:
    """Write a file of scenarios, and the adapter that they pass with."""
    from holodeck.config.cases.suite_files import is_yaml

    if not is_yaml(file):
        raise click.UsageError(f"{str(file)!r} is no YAML file; name it {_SUITE_FILE}, say")
    code = Path(f"{_AGENT_MODULE}.py")
    _require_new({file: _SCENARIOS, code: _ADAPTER_CODE})
    command = f"{shlex.quote(str(file))} --adapter {_AGENT_MODULE}:MyAgent"
    _write(file, _SCENARIOS.replace("holodeck test FILE", f"holodeck test {command}"))
    _write(code, _ADAPTER_CODE)
    cli_context = context.ensure_object(CliContext)
    echo(cli_context.clean(f"Wrote {file} and {code}"))
    echo(cli_context.clean(f"Next: holodeck test {command}"))


def _require_new(files: "dict[Path, str]") -> None:
    """Raise ConfigError if any of the files exists."""
    from holodeck.errors import ConfigError

    for file in files:
        if file.exists() or file.is_symlink():
            raise ConfigError(str(file), "exists and is not overwritten; name another file")


def _load(target: str, folder: Path) -> "AgentDescription":
    from holodeck.cli.commands.validate import describe_agent
    from holodeck.errors import ConfigError

    if ":" not in target:
        raise ConfigError("--from", f"found {target!r}; expected 'module:object', say 'app:agent'")
    try:
        return describe_agent(target, folder)
    except ConfigError as error:
        raise ConfigError("--from", error.message) from error


def render_cases(target: str, agent: "AgentDescription") -> str:
    """Return an agent.yaml with three test cases whose inputs and values are empty."""
    tools = agent.tools or []
    expected = [
        ("uses a tool", f"\n    expected_tools: [{_text(tools[0])}]" if tools else ""),
        ("uses the right tool", f"\n    expected_tools: [{_text(tools[-1])}]" if tools else ""),
        ("needs no tool", "\n    expected_tools: [] # no tool may be called" if tools else ""),
    ]
    if not tools:
        names = ("a common question", "a difficult question", "a question to decline")
        expected = [(name, "") for name in names]
    module = target.partition(":")[0].rpartition(".")[2]
    head = _HEAD.format(
        name=_text(module), backend=_text(target), kind=agent.kind, tools=_comment(agent.tools)
    )
    return head + "\n".join(_CASE.format(name=name, expected=part) for name, part in expected)


def _comment(tools: list[str] | None) -> str:
    """Return a comment on the tools of the agent."""
    if tools is None:
        return (
            "# The agent's tools are unknown. To check its tool calls with 'expected_tools', let it"
            "\n# return {'response': …, 'tool_calls': [{'name': …, 'arguments': {…}}]}."
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
    from holodeck.errors import ReportError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise ReportError(f"{file} cannot be written: {error.strerror}") from error
