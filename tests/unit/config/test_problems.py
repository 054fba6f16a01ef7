"""What people are told about a configuration that does not load."""

import re

import pytest

from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError


def refusal(folder, more):
    folder.agent(more)
    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")
    return str(caught.value)


CASE = "test_cases:\n  - input: hi\n    "
UNSUPPORTED = "evaluations: {metrics: [{metric: bleu, custom_prompt: x}]}"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "test_case: []",
            "agent.yaml:4:1: test_case: unknown key; did you mean 'test_cases'?",
        ),
        (
            "zzz: 1",
            "agent.yaml:4:1: zzz: unknown key; known here: name, ",
        ),
        (
            CASE + "expectd_tools: []",
            (
                "agent.yaml:6:5: test_cases[0].expectd_tools: unknown key;"
                " did you mean 'expected_tools'?"
            ),
        ),
        (
            CASE + "criteria:\n    - The agent says: hello",
            (
                "agent.yaml:7:7: test_cases[0].criteria[0].The agent says: unknown key;"
                " if it is a text with a colon in it, write it in quotes: 'The agent says: …'"
            ),
        ),
        (
            CASE + "criteria: [Polite: yes]",
            "agent.yaml:6:16: test_cases[0].criteria[0].Polite: unknown key; if it is a text with",
        ),
        (
            CASE + "zzz: []",
            "agent.yaml:6:5: test_cases[0].zzz: unknown key; known here: name, input,",
        ),
        (
            CASE + "expected_tools: [{nme: a}]",
            (
                "agent.yaml:6:23: test_cases[0].expected_tools[0].nme: unknown key;"
                " did you mean 'name'?"
            ),
        ),
        (
            CASE + "expected_tools: [{name: a, args: {x: {number: {valu: 1}}}}]",
            (
                "agent.yaml:6:52: test_cases[0].expected_tools[0].args.x.number.valu: unknown key;"
                " did you mean 'value'?"
            ),
        ),
        (
            CASE + "files: [{pth: a.txt, type: text}]",
            "agent.yaml:6:14: test_cases[0].files[0].pth: unknown key; did you mean 'path'?",
        ),
        (
            CASE + "evaluations: [{metric: contains, vlue: x}]",
            (
                "agent.yaml:6:38: test_cases[0].evaluations[0].vlue: unknown key;"
                " did you mean 'value'?"
            ),
        ),
        (
            CASE + "evaluations: [{metric: contians, value: x}]",
            (
                "agent.yaml:6:19: test_cases[0].evaluations[0]: 'metric': unknown metric"
                " 'contians'; did you mean 'contains'?"
            ),
        ),
        (
            CASE + "evaluations: [{value: x}]",
            "agent.yaml:6:19: test_cases[0].evaluations[0]: 'metric' is missing;",
        ),
        (
            CASE + "evaluations: [{type: {judge: yes}, metric: bleu}]",
            "agent.yaml:6:19: test_cases[0].evaluations[0]: 'type': found a mapping;",
        ),
        (
            CASE + "evaluations: [{metric: contains, pattern: x}]",
            "agent.yaml:6:38: test_cases[0].evaluations[0].pattern: unknown key; known here:",
        ),
        (
            "evaluations: {metrcs: []}",
            "agent.yaml:4:15: evaluations.metrcs: unknown key; did you mean 'metrics'?",
        ),
        (
            "tools: [{type: function, name: a, file: a.py, functon: a}]",
            ("agent.yaml:4:47: tools[0].functon: unknown key; did you mean 'function'?"),
        ),
        (
            "execution: {timeout: 5}",
            "agent.yaml:4:13: execution.timeout: unknown key; did you mean 'llm_timeout'?",
        ),
        (
            "execution: {parallel: 4}",
            "agent.yaml:4:13: execution.parallel: unknown key; did you mean 'parallel_test_cases'?",
        ),
        (
            "execution: {llm_timout: 5}",
            "agent.yaml:4:13: execution.llm_timout: unknown key; did you mean 'llm_timeout'?",
        ),
        (
            "observability: {traces: {sampel_rate: 1}}",
            (
                "agent.yaml:4:26: observability.traces.sampel_rate: unknown key;"
                " did you mean 'sample_rate'?"
            ),
        ),
        (
            "observability: {exporters: {otlp: {endpiont: x}}}",
            "agent.yaml:4:36: observability.exporters.otlp.endpiont: unknown key;",
        ),
        (
            "backend: {type: http, url: http://x, answer: {txt: a}}",
            "agent.yaml:4:47: backend.answer.txt: unknown key; did you mean 'text'?",
        ),
        (
            "backend: {type: http, url: http://x, answer: {tool_calls: {path: a, nam: b}}}",
            "agent.yaml:4:69: backend.answer.tool_calls.nam: unknown key; did you mean 'name'?",
        ),
        (
            "backend: {type: http, url: http://x, answer: {tool_calls: {path: a, tool: b}}}",
            "agent.yaml:4:69: backend.answer.tool_calls.tool: unknown key; did you mean 'name'?",
        ),
        (
            "backend: {type: http, url: http://x, answer: {passages: hits}}",
            (
                "agent.yaml:4:47: backend.answer.passages: unknown key;"
                " did you mean 'retrieval_context'?"
            ),
        ),
        (
            "backend: {url: http://x}",
            "agent.yaml:4:10: backend: 'type' is missing; write 'type: http', for example",
        ),
        (
            "backend: {type: htp, url: http://x}",
            "agent.yaml:4:10: backend: 'type': found 'htp'; did you mean 'http'? expected",
        ),
        (
            "backend: {type: http, url: http://x, answer: {tool_calls: {name: b}}}",
            "agent.yaml:4:59: backend.answer.tool_calls.path: this key is missing",
        ),
        (
            "backend: {type: http, url: http://x, answer: {retrieval_context: [a]}}",
            "agent.yaml:4:66: backend.answer.retrieval_context: found a list of 1; expected text",
        ),
        (
            "backend: {type: http, url: http://x, session: {create: {url: http://x}}}",
            "agent.yaml:4:56: backend.session.create.id: this key is missing",
        ),
        (
            "backend: {type: http, url: http://x, method: FETCH}",
            "agent.yaml:4:46: backend.method: found 'FETCH'; did you mean 'PATCH'?",
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_place_and_the_nearest_one(folder, more, message):
    assert refusal(folder, more).startswith(message)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            CASE + "ground_truth: 42",
            "6:19: test_cases[0].ground_truth: found 42; expected text; put",
        ),
        (CASE + "ground_truth: ' '", "found ' '; expected text that is not blank"),
        (CASE + "expected_tools: search", "expected_tools: found 'search'; expected a list"),
        (CASE + "expected_tools: [3]", "expected_tools[0]: found 3; expected text"),
        (
            CASE + "tool_order: maybe",
            "tool_order: found 'maybe'; expected exact, in_order, any_order, subset, superset",
        ),
        (CASE + "tool_order: true", "'tool_order: true' needs 'expected_tools'"),
        (CASE + "forbidden_tools: []", "6:5: test_cases[0]: 'forbidden_tools: []' forbids nothing"),
        (
            CASE + "evaluations: [{metric: bleu, threshold: 70}]",
            "6:45: test_cases[0].evaluations[0].threshold: found 70; expected at most 1",
        ),
        (
            CASE + "evaluations: [{metric: rouge, variant: rougel}]",
            "found 'rougel'; did you mean 'rougeL'? expected 'rouge1', 'rouge2' or 'rougeL'",
        ),
        (
            CASE + "evaluations: [{metric: bleu, retry_on_failure: 9}]",
            "retry_on_failure: found 9; expected at most 3",
        ),
        (
            CASE + "evaluations: [{metric: contains, value: a, values: [b]}]",
            "6:19: test_cases[0].evaluations[0]: write either 'value' or 'values'",
        ),
        ("evaluations: {metrics: []}", "metrics: found a list of 0; expected a list of at least 1"),
        (
            "execution: {llm_timeout: 0}",
            "4:26: execution.llm_timeout: found 0; expected more than 0",
        ),
        (
            "execution: {max_retries: 1.5}",
            "max_retries: found 1.5; expected a whole number",
        ),
        ("execution: {llm_timeout: .inf}", "execution.llm_timeout: found inf; expected a finite"),
        ("tools: [{type: functoin, name: a, file: b, function: c}]", "did you mean 'function'?"),
        (
            "tools: [{type: function, name: a-b, file: b, function: c}]",
            "4:32: tools[0].name: found 'a-b'; expected letters, digits and underscores only",
        ),
        (
            (
                "test_cases:\n  - {name: a, input: x}\n  - {name: b, input: x}\n"
                "  - {name: a, input: y}"
            ),
            "7:6: 'test_cases[2].name': 'a' is already the name of test_cases[0]",
        ),
        (
            "test_cases:\n  - {id: a, input: x}\n  - {id: a, input: y}",
            "6:6: 'test_cases[1].id': 'a' is already the id of test_cases[0]",
        ),
        (
            (
                "tools:\n  - {type: function, name: a, file: b.py, function: c}\n"
                "  - {type: function, name: a, file: b.py, function: d}"
            ),
            "6:22: 'tools[1].name': 'a' is already the name of tools[0]",
        ),
        ("test_cases: 3", "4:13: test_cases: found 3; expected a list"),
        ("observability: yes", "4:16: observability: found 'yes'; expected a mapping"),
    ],
)
def test_a_wrong_value_is_shown_with_what_is_wanted(folder, more, message):
    assert message in refusal(folder, more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            CASE + "evaluations: [{metric: bleu, custom_prompt: x}]",
            "6:34: test_cases[0].evaluations[0].custom_prompt: not supported (",
        ),
        (UNSUPPORTED, "evaluations.metrics[0].custom_prompt: not supported ("),
    ],
)
def test_what_does_nothing_yet_is_refused_and_not_ignored(folder, more, message):
    assert message in refusal(folder, more)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: x\n",
            "agent.yaml:1:1: 'model' is missing; write 'model: {provider: local}', for example",
        ),
        ("name: x\nmodel: {provider: local}\n", "'instructions' is missing"),
        ("model: {provider: local}\n", "agent.yaml:1:1: name: this key is missing"),
        (
            "name: x\nmodel: {provider: opnai, name: m}\ninstructions: {inline: hi}\n",
            "agent.yaml:2:19: model.provider: found 'opnai'; did you mean 'openai'?",
        ),
        (
            "name: x\nmodel: {provider: openai}\ninstructions: {inline: hi}\n",
            "agent.yaml:2:8: model: 'name' is missing; write the name of the model",
        ),
        (
            "name: x\nmodel: {provider: azure_openai, name: d}\ninstructions: {inline: hi}\n",
            "agent.yaml:2:8: model: azure_openai needs 'endpoint: https://",
        ),
        (
            "name: x\nmodel: {provider: local, api_key: k}\ninstructions: {inline: hi}\n",
            "agent.yaml:2:8: model: a local model has no 'endpoint' and no 'api_key'",
        ),
        (
            "name: x\nmodel: {provider: local}\ninstructions: {inline: hi, file: a.md}\n",
            "agent.yaml:3:15: instructions: write exactly one of 'file' and 'inline'",
        ),
        (
            (
                "name: x\nmodel: {provider: openai, name: m, auth_provider: bedrock}\n"
                "instructions: {inline: hi}\n"
            ),
            "agent.yaml:2:51: model.auth_provider: found 'bedrock'; write 'provider:",
        ),
        (
            "name: x\nmodel: gpt-4\ninstructions: {inline: hi}\n",
            "agent.yaml:2:8: model: found 'gpt-4'; expected a mapping",
        ),
    ],
)
def test_an_agent_that_lacks_something_says_what(folder, text, message):
    folder.write("agent.yaml", text)

    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        "{provider: openai, name: m, api_key: [sk-hidden]}",
        "{provider: openai, name: m, api_key: {a: sk-hidden}}",
        "{provider: openai, name: m, api_kye: sk-hidden}",
        "{provider: local, api_key: sk-hidden}",
        "{provider: openai, name: m, max_tokens: '${KEY}'}",
        "{provider: '${KEY}', name: m}",
        "{provider: openai, name: m, temperature: '${KEY}'}",
    ],
)
def test_a_secret_is_never_echoed(folder, monkeypatch, model):
    monkeypatch.setenv("KEY", "sk-hidden")
    folder.write("agent.yaml", f"name: x\nmodel: {model}\ninstructions: {{inline: hi}}\n")

    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")

    assert "sk-hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_headers_are_never_echoed(folder):
    assert "1234" not in refusal(
        folder, "observability: {exporters: {otlp: {headers: {X-Team: 1234}}}}"
    )


def test_a_huge_wrong_value_makes_a_short_message(folder):
    message = refusal(folder, f"execution: {{llm_timeout: '{'x' * 1_000_000}'}}")

    assert len(message) < 300


def test_very_many_problems_make_a_short_message(folder):
    cases = "test_cases:\n" + "".join(f"  - {{inpt: {i}}}\n" for i in range(5000))

    message = refusal(folder, cases)

    assert len(message) <= 2100
    assert message.splitlines()[-1].startswith("and 49")
    assert message.splitlines()[0] == (
        "agent.yaml:5:6: test_cases[0].inpt: unknown key; did you mean 'input'?"
    )


def test_problems_stand_in_the_order_of_the_file(folder):
    places = [
        line.split(":")[1:3]
        for line in refusal(folder, "zzz: 1\ntest_cases: [{inpt: 1}]\nexecution: 3").splitlines()
    ]

    assert places == [["4", "1"], ["5", "15"], ["6", "12"]]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("base_url", "endpoint"),
        ("api_base", "endpoint"),
        ("azure_endpoint", "endpoint"),
        ("azure_deployment", "name"),
        ("deployment_name", "name"),
        ("model", "name"),
        ("max_completion_tokens", "max_tokens"),
        ("token", "api_key"),
        ("api_type", "provider"),
    ],
)
@pytest.mark.parametrize("where", ["model", "judge", "config.yaml"])
def test_what_other_tools_call_a_key_of_a_model_leads_to_ours(folder, where, written, meant):
    if where == "config.yaml":
        folder.write("config.yaml", f"providers: {{openai: {{{written}: x}}}}\n")
    model = f"{{provider: openai, name: m, {written}: x}}"
    judged = f"evaluations: {{model: {model}}}\n" if where == "judge" else ""
    own = model if where == "model" else "{provider: local}"
    folder.write("agent.yaml", f"name: x\nmodel: {own}\ninstructions: {{inline: hi}}\n{judged}")

    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")

    assert str(caught.value).endswith(f".{written}: unknown key; did you mean {meant!r}?")


def test_every_matcher_of_a_tool_that_is_wrong_is_told_in_the_words_of_the_file(folder):
    args = "{x: {number: {value: high, foo: 1}}, y: {regex: ''}, z: {regex: a, fuzzy: b}}"

    told = refusal(folder, CASE + f"expected_tools: [{{name: a, args: {args}}}]").splitlines()

    at = "test_cases[0].expected_tools[0].args"
    assert [line.partition(": ")[2] for line in told] == [
        f"{at}.x.number.value: found 'high'; expected a number",
        (
            f"{at}.x.number.foo: unknown key; known here: value, absolute_tolerance,"
            " relative_tolerance"
        ),
        f"{at}.y.regex: found ''; expected text that is not blank",
        f"{at}.z: a matcher has exactly one of equals, regex, number, fuzzy",
    ]


def test_every_refused_key_of_a_mapping_is_told(folder):
    metric = "{metric: f1_score, threshold: true, timeout_ms: false}"

    told = refusal(folder, CASE + f"timeout: true\n    evaluations: [{metric}]\n    repeat: true")

    assert "'timeout': found true; expected a number" in told
    assert "'repeat': found true; expected a number" in told


def test_a_key_that_is_not_supported_yet_hides_no_other_problem(folder):
    found = refusal(folder, f"{UNSUPPORTED}\nzzz: 1\ntest_cases: [{{inputt: hi}}]")

    assert [re.split(r";| \(", line)[0] for line in found.splitlines()] == [
        "agent.yaml:4:40: evaluations.metrics[0].custom_prompt: not supported",
        "agent.yaml:5:1: zzz: unknown key",
        "agent.yaml:6:15: test_cases[0].inputt: unknown key",
    ]


def test_problems_of_the_shared_configuration_and_of_the_agent_are_told_at_once(folder):
    folder.write("config.yaml", "zzz: 1\nproviders: {openai: {nam: x}}\n")

    found = refusal(folder, "yyy: 1\ntest_cases: [{inputt: hi}]")

    assert [line.split(": unknown key")[0] for line in found.splitlines()] == [
        "config.yaml:1:1: zzz",
        "config.yaml:2:22: providers.openai.nam",
        "agent.yaml:4:1: yyy",
        "agent.yaml:5:15: test_cases[0].inputt",
    ]


def test_what_a_model_lacks_may_stand_in_a_shared_configuration_with_errors(folder):
    folder.write("config.yaml", "zzz: 1\nproviders: {azure_openai: {endpoint: https://x}}\n")
    folder.write(
        "agent.yaml",
        "name: a\nmodel: {provider: azure_openai, name: b}\nyyy: 1\ninstructions: {inline: hi}\n",
    )

    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")

    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [
        "config.yaml:1:1",
        "agent.yaml:3:1",
    ]


def test_each_problem_counts_once_beside_a_key_that_is_not_supported_yet(folder):
    unknown = "\n".join(f"zzz{number}: 1" for number in range(60))

    found = refusal(folder, f"{UNSUPPORTED}\n{unknown}").splitlines()

    assert "custom_prompt: not supported (" in found[0]
    assert len(set(found)) == len(found)
    more = int(found[-1].removeprefix("and ").removesuffix(" more"))
    assert len(found) - 1 + more == 61


def test_what_the_static_checks_find_is_told_beside_what_is_invalid(folder):
    told = refusal(
        folder,
        """\
        response_format: nowhere.json
        backend: google_adk
        evaluations: {metrics: [{metric: "nomodule:grade"}]}
        observability: {nope: 1}
        execution:
        """,
    )

    assert [line.split(": ")[:2] for line in told.splitlines()] == [
        ["agent.yaml:7:17", "observability.nope"],
        ["agent.yaml:8:1", "execution"],
        ["agent.yaml:5:10", "backend"],
        ["agent.yaml:4:18", "response_format"],
        ["agent.yaml:6:25", "evaluations.metrics[0]"],
    ]


def test_cases_are_checked_beside_what_is_invalid_if_all_that_they_need_is_valid(folder):
    case = "test_cases: [{input: hi, expected_tools: [search]}]\nzzz: 1\n"

    told = refusal(folder, case)
    told_with_tools = refusal(folder, "tools: [{type: nothing, name: search}]\n" + case)

    assert "agent.yaml:4:43: test_cases[0].expected_tools[0]: unknown tool 'search'" in told
    assert "test_cases[0]" not in told_with_tools


def test_what_a_wrong_config_yaml_may_add_is_not_told(folder):
    folder.write("config.yaml", "zzz: 1\n")

    assert refusal(folder, "instructions: {file: nowhere.md}\n").splitlines()[1:] == []
