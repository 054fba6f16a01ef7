"""`holodeck validate`."""

import json

import pytest
from click.testing import CliRunner

from holodeck.cli.commands.validate import validate
from holodeck.errors import ConfigError

HEAD = "name: x\nmodel: {provider: local}\ninstructions: {inline: hi}\n"
GOOD = HEAD + "test_cases: [{input: hi, evaluations: [{metric: contains, value: x}]}]\n"
WARNED = HEAD + "test_cases: [{input: hi}]\n"
WRONG = HEAD + "test_cases: [{input: hi, expected_tools: [nope]}]\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(text, *arguments):
        (tmp_path / "agent.yaml").write_text(text)
        return CliRunner().invoke(validate, arguments)

    return run


def test_a_good_file_is_ok(run):
    result = run(GOOD)

    assert result.exit_code == 0
    assert result.stdout == "agent.yaml: 1 test case, 0 tools, 1 metric: ok\n"


@pytest.mark.parametrize(
    ("criteria", "told"),
    [("[polite]", "1 criterion"), ("[polite, {text: short, required: false}]", "2 criteria")],
    ids=["one", "two"],
)
def test_criteria_are_counted_where_there_are_any(run, criteria, told):
    result = run(HEAD + f"test_cases: [{{input: hi, criteria: {criteria}}}]\n")

    assert f"0 metrics, {told}: ok" in result.stdout


def test_a_case_that_is_skipped_need_not_check_anything(run):
    result = run(HEAD + "test_cases: [{input: hi, skip: not yet}]\n")

    assert result.stdout == "agent.yaml: 1 test case, 0 tools, 0 metrics: ok\n"


def test_a_warning_is_told_and_is_ok(run):
    result = run(WARNED)

    assert result.exit_code == 0
    assert result.stdout == (
        "agent.yaml:4:14: warning: test_cases[0]: checks nothing; add evaluations, criteria,"
        " expected_tools or forbidden_tools\n"
        "agent.yaml: 1 test case, 0 tools, 0 metrics: ok, 1 warning\n"
    )


def test_strict_lets_a_warning_fail(run):
    result = run(WARNED, "--strict")

    assert result.exit_code == 2
    assert result.stdout.endswith("1 problem\n")


def test_an_error_exits_with_2(run):
    result = run(WRONG)

    assert result.exit_code == 2
    assert result.stdout.startswith(
        "agent.yaml:4:43: error: test_cases[0].expected_tools[0]: unknown"
    )


def test_a_file_that_does_not_load_is_a_configuration_error(run):
    result = run("name: x\nasserts: []\n", "agent.yaml")

    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("agent.yaml:")


def test_json_holds_the_findings(run):
    result = run(WRONG, "--json")

    assert result.exit_code == 2
    assert json.loads(result.stdout) == [
        {
            "severity": "error",
            "place": "agent.yaml:4:43",
            "path": "test_cases[0].expected_tools[0]",
            "message": "unknown tool 'nope': the agent has no tools",
        }
    ]


def test_json_holds_nothing_for_a_good_file(run):
    assert json.loads(run(GOOD, "--json").stdout) == []


def test_json_holds_what_keeps_a_file_from_loading(run):
    result = run("name: [\n", "--json")

    assert result.exit_code == 2
    assert json.loads(result.stdout)[0]["place"].startswith("agent.yaml:")


def test_what_a_terminal_would_obey_is_spelled_out(run):
    result = run(
        HEAD + 'test_cases: [{input: hi, expected_tools: [{name: x, args: {"\\e[2J": 1}}]}]\n'
    )

    assert result.exit_code == 2
    assert "\x1b" not in result.stdout


CHECKS = "test_cases: [{input: hi, evaluations: [{metric: contains, value: x}]}]\n"


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (
            "google_adk",
            "'google_adk' is not a name of a backend; for an agent of Google ADK, write",
        ),
        (
            "nonsense",
            "unknown backend 'nonsense'; known: a2a, chat, http, mcp, process, semantic_kernel",
        ),
        ("chta", "unknown backend 'chta'; did you mean 'chat'?"),
        ("http", "'http' needs more; write '{type: http, url: …}'"),
        (
            "nomodule:x",
            "module not found: there is no nomodule.py beside the agent.yaml, and no such",
        ),
    ],
)
def test_a_backend_that_does_not_exist_is_an_error_before_the_run(run, backend, message):
    result = run(f"name: x\nbackend: '{backend}'\n{CHECKS}")

    assert result.exit_code == 2
    assert result.stdout.startswith(f"agent.yaml:2:10: error: backend: {message}")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("click.decoratrs:x", "the installed package has no 'click.decoratrs'"),
        ("click.decorators:comand", "did you mean 'command'?"),
    ],
    ids=["module", "attribute"],
)
@pytest.mark.parametrize("user", ["backend", "metric"])
def test_a_misspelt_name_in_an_installed_module_is_a_warning(run, user, target, message):
    backend, metric = (target, "contains, value: x") if user == "backend" else ("click:x", target)

    result = run(
        f"name: x\nbackend: '{backend}'\ntest_cases: [{{input: hi, evaluations: [{{metric: "
        f"{metric if user == 'backend' else repr(metric)}}}]}}]\n"
    )

    warnings = [line for line in result.stdout.splitlines() if " warning: " in line]
    assert result.exit_code == 0
    assert any(message in line for line in warnings)


def test_ok_says_that_the_code_was_not_run(run, tmp_path):
    (tmp_path / "bot.py").write_text("raise SystemExit\ndef answer(text): return text\n")
    result = run(f"name: x\nbackend: 'bot:answer'\n{CHECKS}")
    assert result.exit_code == 0
    assert result.stdout == (
        "agent.yaml: your code was not imported or run: bot:answer (--load does)\n"
        "agent.yaml: 1 test case, 0 tools, 1 metric: ok\n"
    )


def test_loading_finds_approvals_that_the_agent_never_asks_for(run, tmp_path):
    (tmp_path / "asks.py").write_text("def answer(message, context):\n    return message\n")
    approval = "expect_approval: {tool: send_email, then: approve}"

    result = run(
        f"name: x\nbackend: 'asks:answer'\ntest_cases: [{{input: hi, {approval}}}]\n", "--load"
    )

    assert result.exit_code == 2
    assert "test_cases[0].expect_approval: the agent's backend reports no approvals" in (
        result.stdout
    )


def test_loading_finds_stubs_of_unknown_tools_and_tools_that_cannot_be_sealed(run, tmp_path):
    (tmp_path / "chained.py").write_text(
        "from langchain_core.runnables import RunnableLambda\n"
        "from pydantic_ai import Agent\n"
        "from pydantic_ai.models.test import TestModel\n\n"
        "def answer(message: str) -> str:\n    return message\n\n"
        "chain = RunnableLambda(answer)\n"
        "agent = Agent(TestModel())\n\n\n"
        "@agent.tool_plain\ndef refund() -> str:\n    return ''\n"
    )
    case = "{input: hi, tools_in_test: sealed, stubs: {refnd: [{returns: 1}]}}"

    chain, agent = (
        run(f"name: x\nbackend: 'chained:{name}'\ntest_cases: [{case}]\n", "--load").stdout
        for name in ("chain", "agent")
    )

    assert "tools_in_test: the framework of the agent has no place where" in chain
    assert "stubs.refnd: unknown tool 'refnd'; did you mean 'refund'?" in agent
    assert "no place" not in agent


def test_loading_finds_retrieval_tools_that_the_agent_does_not_have(run, tmp_path):
    (tmp_path / "searching.py").write_text(
        "from pydantic_ai import Agent\n"
        "from pydantic_ai.models.test import TestModel\n\n"
        "agent = Agent(TestModel())\n\n\n"
        "@agent.tool_plain\ndef search(query: str) -> str:\n    return query\n"
    )
    agent = "name: x\nbackend: 'searching:agent'\nretrieval_tools: [search, serch]\n"

    result = run(f"{agent}test_cases: [{{input: hi, expected_tools: []}}]\n", "--load")

    assert result.exit_code == 2
    assert "retrieval_tools[1]: unknown tool 'serch'; did you mean 'search'?" in result.stdout
    assert "retrieval_tools[0]" not in result.stdout
