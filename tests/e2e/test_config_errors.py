"""A wrong configuration: one line with the place, what was found and what to write; no agent call.

Each text replaces the metric of the only case, or is a whole agent.yaml.
"""

import pytest

from support.checks import assert_one_error, assert_plain

AGENT = """\
name: greeter
model: {{provider: openai, name: fake, endpoint: "{url}", api_key: none}}
instructions: {{inline: Do what the user says.}}
test_cases:
  - name: greets
    input: Say hello
    evaluations:
      - {metric}
"""
PASSES = "{metric: contains, value: hello}"


@pytest.fixture
def run(agent_dir):
    """Runs `holodeck test` on the agent with this metric and these further lines."""

    def run(metric=PASSES, more="", env=None):
        text = AGENT.format(url=agent_dir.server.url, metric=metric)
        agent_dir.write("agent.yaml", text + more)
        return agent_dir.run("test", env=env)

    yield run
    assert agent_dir.server.requests == []


@pytest.mark.parametrize(
    ("metric", "more", "said"),
    [
        (PASSES, "executionn: {quiet: true}\n", ["agent.yaml:9:1", "executionn", "'execution'"]),
        ("{metric: contains, valuee: x}", "", ["agent.yaml:8:28", "valuee", "'value'"]),
        (PASSES, "name: again\n", ["agent.yaml:9:1", "name", "first on line 1"]),
        ("{metric: containz, value: x}", "", ["agent.yaml:8:9", "containz", "'contains'"]),
        ("{metric: groundedness}", "", ["agent.yaml:8:", "needs 'files' or 'retrieval_context'"]),
        ("{type: geval, criteria: x}", "", ["agent.yaml:8:", "name: this key is missing"]),
        ("{metric: faithfulness}", "", ["agent.yaml:8:", "'type: rag, metric_type: faithfulness'"]),
        ("{metric: x, type: rags}", "", ["agent.yaml:8:", "'rags'; did you mean 'rag'?"]),
        ("{metric: exact_match}", "", ["agent.yaml:8:9", "nothing to compare with", "'value'"]),
        ("{metric: contains, value: x, threshold: 2}", "", ["agent.yaml:8:49", "2", "1"]),
        ("{metric: regex, pattern: '('}", "", ["agent.yaml:8:", "pattern"]),
        ("{metric: bot:missing}", "", ["agent.yaml:8:", "bot"]),
        (PASSES, "tool_filtering: {top_k: 0}\n", ["agent.yaml:9:", "tool_filtering.top_k", "1"]),
        (PASSES, "execution: {llm_timeout: -1}\n", ["agent.yaml:9:26", "llm_timeout", "-1"]),
        (PASSES, "description: ${NOT_SET_ANYWHERE}\n", ["agent.yaml:9:14", "NOT_SET_ANYWHERE"]),
        (PASSES, "tools: [1, 2\n", ["agent.yaml:10:1"]),
        ("{metric: json_schema, schema: {$ref: 'file:///x'}}", "", ["agent.yaml:8:", "$ref"]),
        (PASSES, "tools: [{type: mcp, name: x}]\n", ["agent.yaml:9:", "'command' is missing"]),
    ],
    ids=[
        "unknown key", "unknown key deep", "duplicate key", "unknown metric", "missing input",
        "missing name", "other type", "unknown type", "nothing to compare", "out of range",
        "bad pattern",
        "missing metric", "bad filter", "bad setting", "unset variable", "broken YAML",
        "schema elsewhere", "tool type",
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place_before_any_call(run, metric, more, said):
    ran = run(metric, more)

    assert_one_error(ran, 2, "Configuration Error: agent.yaml:", *said)
    assert ran.stdout == ""


def test_several_mistakes_are_told_at_once_a_line_each(run):
    ran = run("{metric: containz}", "executionn: {}\nnamee: x\n")

    assert_plain(ran)
    assert (ran.code, ran.stdout) == (2, "")
    assert [text for text in ("containz", "executionn", "namee") if text not in ran.stderr] == []
    assert ran.stderr.count("agent.yaml:") == ran.stderr.count("\n") == 3


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("HOLODECK_LLM_TIMEOUT", "abc", "'abc'"),
        ("HOLODECK_PARALLEL_TEST_CASES", "0", "'0'"),
        ("HOLODECK_QUIET", "perhaps", "'perhaps'"),
        ("HOLODECK_LOG_LEVEL", "LOUD", "'LOUD'"),
    ],
)
def test_a_bad_variable_is_an_error_that_names_it(run, variable, value, said):
    ran = run(env={variable: value})

    assert_one_error(ran, 2, f"Configuration Error: {variable}: ", said)


def test_a_variable_that_means_nothing_is_a_warning_with_the_one_that_does(bot_dir, write_bot):
    write_bot()

    ran = bot_dir.run("test", env={"HOLODECK_LLM_TIMEOT": "3"})

    assert_plain(ran)
    assert ran.code == 0
    assert "did you mean HOLODECK_LLM_TIMEOUT?" in ran.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [("agnet.yaml", "did you mean 'agent.yaml'?"), ("none/agent.yaml", "file not found")],
)
def test_a_file_that_is_not_there_is_told_with_the_nearest_one(bot_dir, write_bot, name, said):
    write_bot()

    assert_one_error(bot_dir.run("test", name), 2, name, said)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--timeout", "0"], "--llm-timeout"),
        (["--parallel", "many"], "'many'"),
        (["--limit", "0"], "--limit"),
        (["--format", "json"], "--output"),
    ],
)
def test_a_bad_flag_is_a_usage_error(bot_dir, write_bot, flags, said):
    write_bot()

    ran = bot_dir.run("test", *flags)

    assert_plain(ran)
    assert (ran.code, ran.stdout) == (2, "")
    assert said in ran.stderr
