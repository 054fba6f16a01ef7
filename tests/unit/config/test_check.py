"""What a check finds in an agent that loads."""

import sys

import pytest

from holodeck.config.checks.agent import check, raise_on_errors
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError

TOOLS = """\
tools:
  - {type: function, name: search_web, file: tools.py, function: search}
  - {type: function, name: add, file: tools.py, function: add, parameters: {a: {}, b: {}}}
"""
TOOLS_PY = """\
    import sys
    raise SystemExit("this must never run")

    def search(query: str, *, limit: int = 3) -> str:
        return query

    async def add(a, b):
        return a + b
    """
GOOD_CASE = "test_cases: [{input: hi, expected_tools: []}]\n"


def found(folder, more, name="agent.yaml"):
    folder.write("tools.py", TOOLS_PY)
    folder.agent(more, name)
    return [str(one) for one in check(ConfigLoader().load_agent_yaml(name))]


def case(text):
    return "test_cases:\n  - {input: hi, " + text + "}\n"


def test_a_good_agent_has_no_findings(folder):
    cases = case("expected_tools: [search_web, {name: add, args: {a: 1}}]")

    assert found(folder, TOOLS + cases) == []


def test_an_agent_without_cases_has_nothing_to_test(folder):
    assert found(folder, "") == [
        "agent.yaml:1:1: warning: test_cases: nothing to test; write at least one case"
    ]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "expected_tools: [serch]",
            (
                "8:34: error: test_cases[0].expected_tools[0]: unknown tool 'serch';"
                " did you mean 'search_web'? known: search_web, add"
            ),
        ),
        (
            "expected_tools: [ad_d]",
            "error: test_cases[0].expected_tools[0]: unknown tool 'ad_d'; did you mean 'add'?",
        ),
        (
            "expected_tools: [{name: search}]",
            "unknown tool 'search'; did you mean 'search_web'?",
        ),
        (
            "expected_tools: [{name: add, args: {c: 1}}]",
            "test_cases[0].expected_tools[0].args.c: 'add' has no parameter 'c'; it has a, b",
        ),
        (
            "expected_tools: [{name: search_web, args: {qery: x}}]",
            "'search_web' has no parameter 'qery'; did you mean 'query'?",
        ),
        (
            "expected_tools: [{name: search_web, args: {query: {regex: '(a'}}}]",
            "expected_tools[0].args.query.regex: '(a' is not a regular expression",
        ),
        (
            "forbidden_tools: [delete]",
            "error: test_cases[0].forbidden_tools[0]: unknown tool 'delete'; known:",
        ),
        (
            "expected_tools: [search_web], forbidden_tools: [search_web]",
            "error: test_cases[0].expected_tools[0]: 'search_web' is both expected and forbidden",
        ),
        (
            "expected_tools: [search], forbidden_tools: [search_web]",
            "error: test_cases[0].expected_tools[0]: 'search' is both expected and forbidden",
        ),
    ],
)
def test_expectations_about_tools_must_be_possible(folder, text, finding):
    findings = found(folder, TOOLS + case(text))

    assert any(finding in one for one in findings), findings


@pytest.mark.parametrize(
    "text",
    [
        "expected_tools: [{name: web, match: substring, args: {query: x, limit: 1}}]",
        "expected_tools: [web], forbidden_tools: [add]",
        "expected_tools: []",
    ],
)
def test_possible_expectations_about_tools_are_fine(folder, text):
    assert found(folder, TOOLS + case(text)) == []


@pytest.mark.parametrize(
    ("expected", "parts"),
    [
        ("search", "'search_web'"),
        ("{name: search, match: substring}", "'search_web'"),
        ("ad", "'add'"),
    ],
)
def test_an_expected_tool_that_is_only_a_part_of_a_name_is_a_warning(folder, expected, parts):
    findings = found(folder, TOOLS + case(f"expected_tools: [{expected}]"))

    assert len(findings) == 1
    assert "warning: test_cases[0].expected_tools[0]:" in findings[0]
    assert f"is only a part of {parts}, whose calls count as well" in findings[0]


def test_an_expected_tool_of_an_agent_without_tools_is_an_error(folder):
    assert (
        "unknown tool 'x': the agent has no tools" in found(folder, case("expected_tools: [x]"))[0]
    )


def test_a_backend_brings_tools_that_cannot_be_known(folder):
    folder.write("bot.py", "def run(): ...\n")

    assert found(folder, 'backend: "bot:run"\n' + case("expected_tools: [x]")) == []


@pytest.mark.parametrize(
    ("tool", "finding"),
    [
        (
            "file: tools.py, function: serch",
            "function: tools.py does not define 'serch'; did you mean 'search'?",
        ),
        ("file: tool.py, function: search", "tools[0].file: 'tool.py': file not found"),
        ("file: ../tools.py, function: search", "lies outside of the agent's folder"),
        (
            "file: broken.py, function: f",
            "tools[0].file: broken.py:1 is not Python: invalid syntax",
        ),
        ("file: star.py, function: anything", None),
        ("file: late.py, function: a", None),
        ("file: late.py, function: b", None),
        ("file: late.py, function: c", None),
        ("file: late.py, function: loads", None),
        ("file: late.py, function: inner", "late.py does not define 'inner'"),
    ],
)
def test_the_function_of_a_tool_must_be_there(folder, tool, finding):
    folder.write("bot/broken.py", "def f(:\n")
    folder.write("bot/star.py", "from math import *\n")
    folder.write(
        "bot/late.py",
        """\
        from json import loads
        if True:
            def a(): ...
        else:
            b, (x, c) = 1, (2, 3)
        def outer():
            def inner(): ...
        """,
    )
    folder.write("bot/tools.py", "def search(q): ...\n")
    tools = f"tools: [{{type: function, name: t, {tool}}}]\n"

    findings = found(folder, tools + GOOD_CASE, "bot/agent.yaml")

    assert len(findings) == (0 if finding is None else 1), findings
    assert finding is None or finding in findings[0]


def test_a_syntax_error_has_its_place_once(folder):
    folder.write("bot/broken.py", "def f(:\n")
    tools = "tools: [{type: function, name: t, file: broken.py, function: f}]\n"

    [finding] = found(folder, tools + GOOD_CASE, "bot/agent.yaml")

    assert finding.endswith("broken.py:1 is not Python: invalid syntax")


@pytest.mark.parametrize(
    ("metric", "finding"),
    [
        ("{metric: regex, pattern: '(a'}", "pattern: '(a' is not a regular expression"),
        ("{metric: json_schema, schema: {type: objekt}}", "schema.type: found 'objekt'"),
        ("{metric: 'graders:chek'}", "graders.py does not define 'chek'; did you mean 'check'?"),
        ("{metric: 'nowhere_at_all:check'}", "there is no nowhere_at_all.py beside the agent.yaml"),
        ("{metric: 'pack.sub:check'}", None),
        ("{metric: 'click:echo'}", None),
        ("{metric: 'graders:Grader.check'}", None),
        ("{metric: regex, pattern: '(a', enabled: false}", None),
        ("{metric: contains}", "the metric 'contains' has nothing to compare with; write 'value'"),
    ],
)
def test_a_metric_must_be_one_that_can_be_computed(folder, metric, finding):
    folder.write(
        "graders.py", "raise SystemExit('never run')\ndef check(): ...\nclass Grader: ...\n"
    )
    folder.write("pack/sub.py", "def check(): ...\n")

    findings = found(folder, case(f"expected_tools: [], evaluations: [{metric}]"))

    assert len(findings) == (0 if finding is None else 1), findings
    assert finding is None or (finding in findings[0] and ": error: " in findings[0])


def test_a_global_metric_without_a_reference_is_an_error_of_each_case_that_lacks_it(folder):
    findings = found(
        folder,
        """\
        evaluations: {metrics: [{metric: bleu, threshold: 0.5}]}
        test_cases:
          - {input: a, ground_truth: x}
          - {input: b}
          - {input: c, evaluations: [{metric: contains, value: x}]}
        """,
    )

    assert findings == [
        (
            "agent.yaml:7:5: error: test_cases[1]: the metric 'bleu' has nothing to compare with;"
            " write 'ground_truth' here or 'value' in the metric"
        )
    ]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("name: a", "5:5: warning: test_cases[0]: checks nothing; add evaluations"),
        ("evaluations: []", "checks nothing"),
        ("evaluations: [{metric: contains, value: x, enabled: false}]", "checks nothing"),
        (
            "evaluations: [{metric: bleu, value: x}, {metric: rouge, value: y}]",
            "cannot fail: bleu, rouge without a threshold above 0 gives no verdict",
        ),
        ("ground_truth: x, expected_tools: []", "[0].ground_truth: no metric compares with it"),
        (
            "evaluations: [{metric: latency, max_ms: 9}, {metric: latency, max_ms: 9}]",
            "evaluations[1]: 'latency' is listed twice with equal settings",
        ),
    ],
)
def test_a_case_that_proves_nothing_is_a_warning(folder, text, finding):
    findings = found(folder, case(text))

    assert len(findings) == 1
    assert finding in findings[0]
    assert ": warning: " in findings[0]


@pytest.mark.parametrize(
    "text",
    [
        "evaluations: [{metric: contains, value: x}]",
        "evaluations: [{metric: bleu, value: x, threshold: 0.1}]",
        "ground_truth: x, evaluations: [{metric: exact_match}]",
        "ground_truth: x, evaluations: [{metric: 'click:echo'}]",
        "forbidden_tools: [x], evaluations: [{metric: bleu, value: x, required: false}]",
        "evaluations: [{metric: latency, max_ms: 9}, {metric: bleu, value: y, required: false}]",
    ],
)
def test_a_case_that_can_fail_is_fine(folder, text):
    warnings = [one for one in found(folder, case(text)) if ": warning: " in one]

    assert warnings == []


def test_a_missing_file_of_one_case_does_not_stop_the_others(folder):
    folder.agent(case("expected_tools: [], files: [{path: a.txt, type: text}]"))
    findings = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert [one.severity for one in findings] == ["error"]
    assert "file not found" in findings[0].message
    raise_on_errors(findings)


@pytest.mark.parametrize(
    ("more", "finding"),
    [
        ("response_format: {oneOf: []}\n", "4:18: error: response_format: oneOf: [] should be"),
        ("response_format: no.json\n", "4:18: error: response_format: 'no.json': file not found"),
        (
            "observability: {traces: {redaction_patterns: ['(a']}}\n",
            "4:47: error: observability.traces.redaction_patterns[0]: '(a' is not a regular",
        ),
        (
            "observability: {enabled: true, exporters: {otlp: {endpoint: 'otel:4318'}}}\n",
            "4:61: error: observability.exporters.otlp.endpoint: 'otel:4318' is not a URL",
        ),
        (
            "backend: {type: http, url: 'htp://x'}\n",
            "4:28: error: backend.url: a URL must begin with http:// or https://",
        ),
        (
            'backend: "bto:run"\n',
            "4:10: error: backend: module not found: there is no bto.py beside the agent.yaml",
        ),
        (
            "evaluations: {model: {provider: ollama, name: m}, metrics: [{metric: bleu}]}\n",
            "4:22: warning: evaluations.model: no metric uses this model",
        ),
    ],
)
def test_the_rest_of_the_agent_is_checked_too(folder, more, finding):
    assert any(finding in one for one in found(folder, more + GOOD_CASE))


@pytest.mark.parametrize(
    ("head", "finding"),
    [
        (
            "model: {provider: openai, name: m}\ninstructions: {inline: hi}\n",
            "2:8: warning: model: missing API key for openai: set OPENAI_API_KEY",
        ),
        (
            "model: {provider: openai, name: m, endpoint: localhost}\ninstructions: {inline: hi}\n",
            "2:46: error: model.endpoint: a URL must begin with",
        ),
        (
            "model: {provider: local, name: ./a.gguf}\ninstructions: {inline: hi}\n",
            "2:32: error: model.name: file not found: './a.gguf'",
        ),
        (
            "model: {provider: local}\ninstructions: {file: no.md}\n",
            "3:22: error: instructions.file: 'no.md': file not found",
        ),
    ],
)
def test_model_and_instructions_are_checked(folder, head, finding):
    folder.write("agent.yaml", f"name: x\n{head}{GOOD_CASE}")

    findings = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert len(findings) == 1
    assert finding in str(findings[0])


def test_errors_are_raised_together_and_warnings_are_not(folder):
    folder.agent("test_cases:\n  - {input: a, expected_tools: [x]}\n  - {input: b}\n")
    findings = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    with pytest.raises(ConfigError) as caught:
        raise_on_errors(findings)

    assert str(caught.value) == (
        "agent.yaml:5:33: test_cases[0].expected_tools[0]: unknown tool 'x': the agent has no tools"
    )
    raise_on_errors([one for one in findings if one.severity == "warning"])


JUDGING = """\
evaluations: {model: {provider: ollama, name: m}, metrics: [{metric: bleu}]}
test_cases:
  - {input: a, expected_tools: []}
  - {%s}
"""


@pytest.mark.parametrize(
    ("case_", "is_asked"),
    [
        ("input: b, criteria: [It is kind.]", True),
        ("simulate: {situation: x}, evaluations: [{metric: contains, value: x}]", True),
        (
            "input: b, evaluations: [{type: judge, name: j, criteria: [{question: Kind?}]}]",
            True,
        ),
        ("input: b, expected_tools: []", False),
    ],
    ids=["criteria", "simulated user", "metric", "nobody"],
)
def test_a_judge_that_one_of_several_cases_asks_is_asked(folder, case_, is_asked):
    findings = found(folder, JUDGING % case_)

    assert any("no metric uses this model" in one for one in findings) is not is_asked


def test_a_budget_without_the_price_of_the_model_is_an_error_of_the_budget(folder):
    head = "name: x\nmodel: {provider: openai, name: m, api_key: k}\ninstructions: {inline: hi}\n"
    folder.write("agent.yaml", f"{head}execution: {{max_cost: 1}}\n{GOOD_CASE}")

    [finding] = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert str(finding).startswith("agent.yaml:4:23: error: execution.max_cost: ")


@pytest.mark.parametrize("first", ["enabled: false", "enabled: true"])
def test_a_broken_metric_is_found_behind_one_that_is_switched_off(folder, first):
    metrics = f"[{{metric: contains, value: x, {first}}}, {{metric: regex, pattern: '(a'}}]"

    findings = found(folder, case(f"expected_tools: [], evaluations: {metrics}"))

    assert len(findings) == 1
    assert "evaluations[1]: pattern: '(a' is not a regular expression" in findings[0]


def test_an_own_metric_may_compare_with_the_ground_truth(folder):
    folder.write("graders.py", "def check(response, ground_truth): ...\n")
    metric = "evaluations: [{metric: 'graders:check', threshold: 0.5}]"

    assert found(folder, case(f"ground_truth: x, {metric}")) == []


@pytest.mark.parametrize(
    ("library", "metric"),
    [("sacrebleu", "bleu"), ("rouge_score", "rouge"), ("nltk", "meteor")],
)
def test_a_metric_whose_library_is_not_installed_is_found_before_a_run(
    folder, monkeypatch, library, metric
):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not there

    findings = found(folder, case(f"evaluations: [{{metric: {metric}, value: x, threshold: 0.5}}]"))

    assert len(findings) == 1
    assert f"metric {metric}" in findings[0]
    assert "nlp" in findings[0]


def test_a_limit_that_is_no_cost_needs_no_prices(folder):
    head = "name: x\nmodel: {provider: openai, name: m, api_key: k}\ninstructions: {inline: hi}\n"
    folder.write("agent.yaml", f"{head}execution: {{max_tokens: 1}}\n{GOOD_CASE}")

    assert check(ConfigLoader().load_agent_yaml("agent.yaml")) == []


HTTP = "backend:\n  type: http\n  url: 'http://x'\n"


@pytest.mark.parametrize(
    ("answer", "checks", "is_warned"),
    [
        ("", "expected_tools: [pay]", True),
        ("", "forbidden_tools: [pay]", True),
        ("", "expected_tools: []", True),
        ("", "evaluations: [{metric: contains, value: x}]", False),
        ("  answer: {tool_calls: calls}\n", "expected_tools: [pay]", False),
    ],
)
def test_tool_checks_that_a_url_can_never_decide_are_warned_of(folder, answer, checks, is_warned):
    folder.write("agent.yaml", f"name: a\n{HTTP}{answer}{case(checks)}")

    warnings = [str(one) for one in check(ConfigLoader().load_agent_yaml("agent.yaml"))]

    assert [one for one in warnings if "tool calls are unknown" in one] == (warnings[:is_warned])
    assert not is_warned or warnings[0].startswith("agent.yaml:3:3: warning: backend.answer: ")


@pytest.mark.parametrize(
    ("swallowed", "meant"),
    [
        ("    answer:\n      tool_calls: calls\n", "backend.answer"),
        ("    tool_calls: calls\n", "backend.answer.tool_calls"),
        ("    prompt_tokens: usage.in\n", "backend.answer.prompt_tokens"),
        ("    headers:\n      x-key: secret\n", "backend.headers"),
    ],
    ids=["answer is indented", "the line 'answer:' is gone", "tokens", "headers"],
)
def test_a_key_of_the_backend_that_the_request_swallows_is_an_error(folder, swallowed, meant):
    request = "  request:\n    input: '{input}'\n" + swallowed
    folder.write("agent.yaml", f"name: a\n{HTTP}{request}{case('expected_tools: []')}")

    with pytest.raises(ConfigError, match=rf"'{meant}' is probably meant: indent it less"):
        ConfigLoader().load_agent_yaml("agent.yaml")


def test_a_request_may_have_a_text_of_its_own(folder):
    request = "  request: {text: '{input}', stream: false}\n"
    folder.write("agent.yaml", f"name: a\n{HTTP}{request}{case('evaluations: []')}")

    assert ConfigLoader().load_agent_yaml("agent.yaml").backend.request["text"] == "{input}"


def test_a_url_is_short_for_the_backend_that_sends_requests_to_it(folder):
    url = "https://bots.example/chat"
    folder.write("agent.yaml", f"name: a\nbackend: '{url}'\n{case('expected_tools: []')}")

    agent = ConfigLoader().load_agent_yaml("agent.yaml")

    assert (agent.backend.type, agent.backend.url) == ("http", url)
    assert [one.location for one in check(agent)] == ["agent.yaml:2:10"]


def _session(keys):
    return (
        f"  session: {{create: {{url: 'http://x', {keys}}}}}\n  headers: {{a: '{{session_id}}'}}\n"
    )


@pytest.mark.parametrize(
    ("keys", "finding"),
    [
        ("  prepare: shop:missing\n",
         "agent.yaml:5:12: error: backend.prepare: shop.py does not define 'missing'"),
        ("  parse: shop\n", "'parse' is 'shop'; write 'module:function'"),
        ("  session: {create: {url: nowhere, id: id}}\n  headers: {a: '{session_id}'}\n",
         "backend.session.create.url: a URL must begin with http:// or https://"),
        ("  method: GET\n  request: {q: '{input}'}\n", "a GET request has no body; write 'query:"),
        ("  parse: shop:parse\n  answer: {text: a}\n", "'parse' reads the whole response; remove"),
        ("  answer: {text: a..b}\n", "error: backend.answer.text: 'a..b' is not a path"),
        ("  answer: {tool_calls: {path: a, name: 'b['}}\n",
         "error: backend.answer.tool_calls.name: 'b[' is not a path"),
        ("  request: {q: hi}\n", "error: backend.request: has no place for the input"),
        (_session("id: 'a.['"), "error: backend.session.create.id: 'a.[' is not a path"),
        (_session("id: id, method: GET, request: {a: b}"), "a GET request has no body; remove"),
        (_session("id: id, request: {a: '{input}'}"),
         "warning: backend.session.create.request: '{input}' is no placeholder here; known:"),
        ("  request: {q: '{input}', c: '{masages}'}\n",
         "warning: backend.request: '{masages}' is no placeholder here; did you mean 'messages'?"),
        ("  headers: {a: 'Bearer {secret}'}\n", "backend.headers.a: a placeholder is unknown;"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_backend_behind_a_url_is_found_without_asking_it(
    folder, keys, finding
):
    folder.write("shop.py", "def parse(answer): ...\n")
    folder.write("agent.yaml", f"name: a\n{HTTP}{keys}{case('expected_tools: []')}")

    try:
        findings = [str(one) for one in check(ConfigLoader().load_agent_yaml("agent.yaml"))]
    except ConfigError as error:
        findings = [str(error)]

    assert any(finding in one for one in findings), findings


@pytest.mark.parametrize(
    ("keys", "is_warned"), [("", True), ("  parse: shop:parse\n", False)], ids=["none", "parse"]
)
def test_a_folder_of_code_without_code_is_warned_of(folder, keys, is_warned):
    folder.write("shop.py", "def parse(answer): ...\n")
    folder.write("agent.yaml", f"name: a\ncode: .\n{HTTP}{keys}{case('expected_tools: []')}")

    findings = [str(finding) for finding in check(ConfigLoader().load_agent_yaml("agent.yaml"))]

    assert any("code: has no effect" in finding for finding in findings) is is_warned


@pytest.mark.parametrize("name", ["messages", "conversation_id", "session_id"])
def test_a_service_that_is_told_the_conversation_can_have_turns(folder, name):
    session = "  session: {create: {url: 'http://x', id: id}}\n" * (name == "session_id")
    request = f"  request: {{q: '{{input}}', r: '{{{name}}}'}}\n"
    turns = "test_cases: [{turns: [{input: a, expected_tools: []}, {input: b}]}]\n"
    folder.write("agent.yaml", f"name: a\n{HTTP}{request}{session}{turns}")

    findings = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert [one for one in findings if one.severity == "error"] == []


RELEVANT = "evaluations: [{type: rag, metric: contextual_relevancy, model: {provider: local}}]"


@pytest.mark.parametrize(
    ("keys", "checks", "is_warned"),
    [
        ("", RELEVANT, True),
        ("  answer: {retrieval_context: hits}\n", RELEVANT, False),
        ("retrieval_tools: [search]\n", RELEVANT, False),
        ("", f"{RELEVANT}, retrieval_context: [a]", False),
        ("", "evaluations: [{metric: contains, value: x}]", False),
    ],
    ids=["nothing", "path", "tool", "case", "other metric"],
)
def test_metrics_of_passages_that_a_url_can_never_decide_are_warned_of(
    folder, keys, checks, is_warned
):
    folder.write("agent.yaml", f"name: a\n{HTTP}{keys}{case(checks)}")

    warnings = [str(one) for one in check(ConfigLoader().load_agent_yaml("agent.yaml"))]

    assert any("unknown what the agent retrieved" in one for one in warnings) is is_warned


CLAUDE = """\
name: a
model: {provider: anthropic, name: fake, api_key: k}
instructions: {inline: Be brief.}
test_cases: [{input: a, expected_tools: [web_search]}]
claude: """


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("{max_turns: 3, web_search: true, permission_mode: acceptAll}", []),
        ("{web_search: true, bash: {enabled: true}}", ["claude.bash: has no effect"]),
        ("{max_turns: 3}", ["unknown tool 'web_search'"]),
    ],
    ids=["with an effect", "of Claude Code", "without the search"],
)
def test_settings_of_claude_that_have_no_effect_are_named(folder, keys, expected):
    folder.write("agent.yaml", CLAUDE + keys)

    try:
        found = [str(one) for one in check(ConfigLoader().load_agent_yaml("agent.yaml"))]
    except ConfigError as error:
        found = [str(error)]

    assert len(found) == len(expected)
    assert all(text in one for text, one in zip(expected, found, strict=True)), found


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (CLAUDE.replace("anthropic", "openai") + "{max_turns: 3}", "is for models of Anthropic"),
        (CLAUDE + "{web_search: true}\nbackend: 'a:b'", "'claude' is for the built-in agent"),
        (CLAUDE + "{web_serch: true}", "web_search"),
        (CLAUDE + "{max_turns: 0}", "max_turns"),
    ],
    ids=["other provider", "backend", "misspelt", "none"],
)
def test_settings_of_claude_that_cannot_act_are_errors(folder, agent, expected):
    folder.write("agent.yaml", agent)

    with pytest.raises(ConfigError, match=expected):
        ConfigLoader().load_agent_yaml("agent.yaml")
