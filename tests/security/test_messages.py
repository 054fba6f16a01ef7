"""What is said about a mistake is short, however large and however many the mistakes are."""

import pytest

from support.checks import assert_plain

HEAD = "name: x\nmodel: {provider: openai, name: m, api_key: k}\ninstructions: {inline: hi}\n"
CASE = HEAD + "test_cases:\n- input: hi\n"
LONG = "x" * 100_000
TOOL = "type: function, name: t, file: t.py, function: f"

WRONG = {
    "a provider of 10 MB": HEAD.replace("openai", "x" * 10_000_000),
    "a metric": CASE + f"  evaluations: [{{metric: {LONG}}}]\n",
    "a type of metric": CASE + f"  evaluations: [{{type: {LONG}, metric: x}}]\n",
    "a regular expression": CASE + f"  evaluations: [{{metric: regex, pattern: '({LONG}'}}]\n",
    "a metric's module": CASE + f"  evaluations: [{{metric: '{LONG}:f'}}]\n",
    "a threshold": CASE + f"  evaluations: [{{metric: bleu, threshold: {LONG}}}]\n",
    "a backend's module": HEAD + f"backend: '{LONG}:f'\n",
    "a type of backend": HEAD + f"backend: {{type: {LONG}}}\n",
    "a tool's name": HEAD + f"tools: [{{{TOOL}}}]\n".replace("t,", f"a b{LONG},", 1),
    "a tool's file": HEAD + f"tools: [{{{TOOL}}}]\n".replace("t.py", LONG),
    "a type of tool": HEAD + f"tools: [{{{TOOL}}}]\n".replace("function,", f"{LONG},", 1),
    "a file of instructions": HEAD.replace("inline: hi", f"file: {LONG}"),
    "a variable": HEAD + f"description: ${{{LONG}}}\n",
    "an endpoint": HEAD.replace("name: m", f"name: m, endpoint: {LONG}"),
    "a file of weights": HEAD.replace("openai, name: m", f"local, name: {LONG}.gguf"),
    "a setting": HEAD + f"execution: {{llm_timeout: {LONG}}}\n",
    "a file of a schema": HEAD + f"response_format: {LONG}\n",
    "a type in a schema": HEAD + f"response_format: {{type: {LONG}}}\n",
    "a pattern to hide": HEAD + f"observability: {{traces: {{redaction_patterns: ['({LONG}']}}}}\n",
    "an alias": HEAD + f"x: *{LONG}\n",
    "a file of a case": CASE + f"  files: [{{path: {LONG}, type: text}}]\n",
    "a type of file": CASE + f"  files: [{{path: x, type: {LONG}}}]\n",
    "a matcher": CASE + f"  expected_tools: [{{name: t, args: {{q: {{regex: '({LONG}'}}}}}}]\n",
    "a tool that is expected": CASE + f"  expected_tools: [{LONG}]\n",
    "a name that is taken": HEAD + "test_cases:\n" + f"- {{name: {LONG}, input: hi}}\n" * 2,
    "no YAML": HEAD + f"a: b: {LONG}\n",
    "1,000 long keys": HEAD + "".join(f"{'k' * 1000}{n}: 1\n" for n in range(1000)),
    "5,000 unknown keys": HEAD + "".join(f"k{n}: 1\n" for n in range(5_000)),
    "5,000 cases without input": HEAD + f"test_cases: [{'{},' * 5_000}]\n",
    "5,000 wrong cases": HEAD + "test_cases:\n" + "- {inptu: hi}\n" * 5_000,
    "5,000 unknown metrics": CASE + f"  evaluations: [{'{metric: nope},' * 5000}]\n",
    "2,000 names that are taken": HEAD + "test_cases:\n" + "- {name: d, input: hi}\n" * 2000,
}


@pytest.mark.parametrize("what", WRONG)
def test_a_message_is_short_whatever_it_is_about(tmp_path, cli, tally, what):
    (tmp_path / "agent.yaml").write_text(WRONG[what])

    ran = cli.run("validate", cwd=tmp_path)

    assert_plain(ran)
    said = ran.stdout + ran.stderr
    assert (ran.code, "Internal Error" in said) == (2, False)
    tally("long messages", [said[:200]] if len(said.encode()) > 2048 else [], 1)


def test_what_is_found_in_5_000_cases_is_told_of_some(tmp_path, cli):
    (tmp_path / "agent.yaml").write_text(HEAD + "test_cases:\n" + "- input: hi\n" * 5_000)

    ran = cli.run("validate", cwd=tmp_path)

    assert len(ran.stdout) < 20_000
    assert "and 4900 more; --json shows all" in ran.stdout


@pytest.mark.parametrize(
    "args",
    [
        ("test", LONG), ("validate", LONG), ("report", LONG), ("score", LONG), (LONG,),
        ("test", f"--{LONG}"), ("test", "-o", LONG), ("test", "-o", f"{LONG}.md"),
        ("test", "--format", LONG), ("test", "--resume", LONG), ("test", "-j", LONG),
        ("runs", LONG), ("runs", "show", LONG),
    ],
    ids=lambda args: " ".join(args)[:20],
)  # fmt: skip
def test_an_argument_of_any_length_gets_a_short_answer(tmp_path, cli, tally, args):
    (tmp_path / "agent.yaml").write_text(CASE)

    ran = cli.run(*args, cwd=tmp_path)

    assert (ran.code, "Internal Error" in ran.stderr) == (2, False)
    tally("long messages", [args] if len(ran.stderr) > 2300 else [], 1)
