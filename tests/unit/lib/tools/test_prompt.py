"""Prompt tools against a real server on loopback."""

import json

import pytest

import holodeck
from holodeck.config.checks.agent import check
from holodeck.errors import ConfigError
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.reports.html import generate_html_report
from holodeck.lib.tools.prompt import PromptTemplate
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

SUMMARIZE = {
    "type": "prompt",
    "name": "summarize",
    "description": "Summarizes a text.",
    "template": "Summarize in {{words}} words: {{ text }}",
    "parameters": {"text": {"type": "string"}, "words": {"type": "integer", "default": 5}},
}
CALL = ("summarize", {"text": "a long text"})
FAST = ExecutionConfig(retry_delay=0.01, max_retries=1)


def agent_with(server, tool=SUMMARIZE, **fields):
    model = {"provider": "openai", "name": "big", "endpoint": server.url}
    raw = {"name": "a", "backend": "chat", "model": model, "instructions": {"inline": "Help."}}
    return Agent.model_validate({**raw, "tools": [tool], **fields})


async def answer(agent, message="hi"):
    backend = await BackendSelector.select(agent, execution=FAST)
    try:
        return await backend.invoke_once(message)
    finally:
        await backend.teardown()


@pytest.mark.parametrize("backend", ["chat", "semantic_kernel"])
async def test_a_prompt_is_filled_with_the_arguments_and_answered_by_a_model(fake_openai, backend):
    fake_openai.reply(tool_calls=[CALL], usage=(10, 1))
    fake_openai.reply("short", usage=(7, 2))
    fake_openai.reply("Here it is.", usage=(20, 3))
    own = {"provider": "openai", "name": "small", "endpoint": fake_openai.url, "temperature": 1}

    result = await answer(agent_with(fake_openai, {**SUMMARIZE, "model": own}, backend=backend))

    asked = fake_openai.requests[1]
    assert asked.messages == [{"role": "user", "content": "Summarize in 5 words: a long text"}]
    assert (asked.body["model"], asked.body["temperature"]) == ("small", 1)
    assert result.response == "Here it is."
    assert [one["result"] for one in result.tool_results] == ["short"]
    assert result.token_usage.total_tokens == 11 + 9 + 23
    cost = result.tool_results[0]["model_cost"]
    assert (cost.model, cost.calls, cost.tokens.total_tokens) == ("openai/small", 1, 9)
    assert result.tools == ["summarize"]


async def test_the_agents_own_model_answers_by_default_and_values_are_only_data(fake_openai):
    text = "{{words}} {{text}} \\1 {{missing}}"
    fake_openai.reply(tool_calls=[("summarize", {"text": text, "words": 3})])
    fake_openai.reply("short").reply("Here it is.")

    await answer(agent_with(fake_openai))

    assert fake_openai.requests[1].prompt == f"Summarize in 3 words: {text}"
    assert fake_openai.requests[1].body["model"] == "big"


@pytest.mark.parametrize(
    ("arguments", "reply", "error"),
    [
        ({"text": "x"}, {"status": 400, "content": "no such model"}, "the model openai/big: "),
        ({"text": "x"}, {"content": " "}, "the model openai/big answered nothing"),
        ({"text": 1}, None, "ArgumentError: text: 1 is not of type 'string'"),
        ({}, None, "ArgumentError: 'text' is a required property"),
        ({"text": "x", "style": "y"}, None, "ArgumentError: Additional properties"),
    ],
    ids=["refused", "empty", "wrong type", "missing", "unknown"],
)
async def test_a_prompt_without_an_answer_is_an_error_and_the_agent_goes_on(
    fake_openai, arguments, reply, error
):
    fake_openai.reply(tool_calls=[("summarize", arguments)])
    if reply is not None:
        fake_openai.reply(**reply)
    fake_openai.reply("I cannot.")

    result = await answer(agent_with(fake_openai))

    [failed] = result.tool_results
    assert (result.response, failed["is_error"]) == ("I cannot.", True)
    assert error in failed["result"]


async def test_an_answer_that_is_cut_off_says_so(fake_openai):
    fake_openai.reply(tool_calls=[CALL])
    fake_openai.reply("The long", finish_reason="length").reply("Done.")

    [result] = (await answer(agent_with(fake_openai))).tool_results

    assert result["result"] == "The long\n[The answer ended at the limit of tokens.]"


def test_tokens_of_a_prompt_count_in_budgets_at_the_price_of_its_model(fake_openai):
    for _ in range(2):
        fake_openai.reply(tool_calls=[CALL], usage=(1_000_000, 0))
        fake_openai.reply("short", usage=(1_000_000, 0))
        fake_openai.reply("Here it is.", usage=(1_000_000, 0))
    own = {"provider": "openai", "name": "small", "endpoint": fake_openai.url}
    agent = agent_with(
        fake_openai,
        {**SUMMARIZE, "model": own},
        test_cases=[
            {"name": name, "input": "hi", "expected_tools": ["summarize"]} for name in "ab"
        ],
        execution={"max_tokens": 2_500_000, "retry_delay": 0.01},
        prices={
            "currency": "USD",
            "models": {
                "openai/big": {"input": 3, "output": 1},
                "openai/small": {"input": 0.5, "output": 1},
            },
        },
    )

    report = holodeck.run(agent)

    first, second = report.results
    assert first.token_usage.total_tokens == 3_000_000
    assert first.cost.agent == pytest.approx(2 * 3 + 0.5)
    assert "2,500,000 tokens" in second.skip_reason


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{text}} {{wrods}}", r"unknown parameter \{\{wrods\}\}; did you mean 'words'\?"),
        ("{{text}}", r"the parameter 'words' is not used; write \{\{words\}\} in the prompt"),
        ("{{text}}\n{{words.first}}", r"line 2 of the prompt: invalid placeholder"),
        ("{{$text}} {{words}}", r"invalid placeholder '\{\{\$text\}\}'; write \{\{name\}\}"),
    ],
)
def test_placeholders_and_parameters_have_to_match(text, problem):
    with pytest.raises(ConfigError, match=problem):
        PromptTemplate.of(text, SUMMARIZE["parameters"], "tools.summarize")


def test_validate_finds_what_is_wrong_with_a_prompt(tmp_path, fake_openai):
    (tmp_path / "p.md").write_text("---\nversion: [2\n---\n{{text}} {{words}}")
    rest = {key: value for key, value in SUMMARIZE.items() if key != "template"}
    broken = agent_with(fake_openai, {**rest, "file": "p.md"}, test_cases=[{"input": "x"}])
    missing = agent_with(fake_openai, {**rest, "file": "q.md"}, test_cases=[{"input": "x"}])
    unknown = [{"input": "x", "expected_tools": [{"name": "summarize", "args": {"size": 1}}]}]
    wrong = agent_with(fake_openai, test_cases=unknown)

    found = [str(check(one.with_base_dir(tmp_path))[0]) for one in (broken, missing, wrong)]

    assert "tools[0].file: p.md:3:1: invalid front matter" in found[0]
    assert "tools[0].file: 'q.md'" in found[1]
    assert "size" in found[2]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"file": "p.md"}, "exactly one of 'template' and 'file'"),
        ({"template": None}, "exactly one of 'template' and 'file'"),
        ({"parameters": {}}, "at least 1 item"),
        ({"parameters": {"two words": {}}}, "pattern"),
        ({"description": None}, "description"),
    ],
)
def test_an_entry_that_is_no_prompt_tool_is_refused(fake_openai, change, problem):
    with pytest.raises(ValueError, match=problem):
        agent_with(fake_openai, {**SUMMARIZE, **change})


def test_reports_and_the_record_show_the_versions_of_the_prompts(tmp_path, fake_openai):
    (tmp_path / "system.md").write_text("---\nversion: 3\nauthor: Ada\n---\nHelp.")
    fake_openai.otherwise("Yes.")
    agent = agent_with(
        fake_openai,
        instructions={"file": "system.md"},
        test_cases=[{"input": "hi", "evaluations": [{"metric": "contains", "value": "Yes"}]}],
    ).with_base_dir(tmp_path)

    report = holodeck.run(agent)

    shown = [str(one) for one in report.prompts]
    assert shown[0] == "instructions 3 by Ada"
    assert shown[1].startswith("summarize auto-")
    assert " · ".join(shown) in report.to_markdown()
    assert ", ".join(shown) in generate_html_report(report)
    assert json.loads(report.to_json())["prompts"][0]["file_path"] == "system.md"
    assert fake_openai.requests[0].messages[0]["content"] == "Help."


async def test_semantic_kernel_renders_instructions_as_its_template_on_request(fake_openai):
    text = "Be brief{{$style}}."
    instructions = {"inline": text, "template": "semantic-kernel"}
    agent = agent_with(fake_openai, instructions=instructions, backend=None, tools=None)
    unchanged = agent_with(fake_openai, instructions={"inline": text}, backend=None, tools=None)

    await answer(unchanged)
    await answer(agent)

    sent = [request.messages[0]["content"] for request in fake_openai.requests]
    assert sent == [text, "Be brief."]
    assert "{{$style}} has no value" in str(check(agent)[0])
    with pytest.raises(ValueError, match="rendered by Semantic Kernel"):
        agent_with(fake_openai, instructions=instructions)


def test_front_matter_without_a_known_key_may_be_text(tmp_path, fake_openai):
    (tmp_path / "system.md").write_text("---\nNote: be polite.\n---\nHelp.")
    agent = agent_with(fake_openai, instructions={"file": "system.md"}).with_base_dir(tmp_path)

    warnings = [str(one) for one in check(agent)]

    assert any("the block with Note between '---' is front matter" in one for one in warnings)
