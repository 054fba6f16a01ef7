"""What metrics need of a case, and what is said where the case does not have it."""

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader

RETRIEVAL = "type: function, name: search, file: tools.py, function: search, is_retrieval"
HEAD = """\
name: a
%s
evaluations:
  model: {provider: ollama, name: m}
  metrics: [%s]
test_cases: [{input: hi, ground_truth: x, evaluations: [{metric: exact_match}]}, {%s}]
"""
PLAIN = "model: {provider: ollama, name: m}\ninstructions: {inline: x}"
FAITHFUL = "{type: rag, metric_type: faithfulness, threshold: 0.5}"
CORRECT = "{type: rag, metric_type: contextual_recall, threshold: 0.5}"
GROUNDED = "{metric: groundedness, threshold: 0.5}"
NO_PASSAGES = "needs 'retrieval_context' (or name a tool in 'retrieval_tools') in the case"


def told(folder, head, metric, case):
    folder.write("tools.py", "def search(q): ...\n")
    folder.write("bot.py", "def run(message, context): ...\n")
    folder.write("a.txt", "text")
    folder.write("agent.yaml", HEAD % (head, metric, case))
    findings = check(ConfigLoader().load_agent_yaml("agent.yaml"))
    return [one.message for one in findings if one.severity == "error"]


@pytest.mark.parametrize(
    ("head", "case", "is_missing"),
    [
        (PLAIN, "input: hi", True),
        (PLAIN, "input: hi, retrieval_context: [a passage]", False),
        (f"{PLAIN}\ntools: [{{{RETRIEVAL}: true}}]", "input: hi", False),
        (f"{PLAIN}\ntools: [{{{RETRIEVAL}: false}}]", "input: hi", True),
        (
            f"{PLAIN}\nretrieval_tools: [search]\ntools: [{{{RETRIEVAL}: false}}]",
            "input: hi",
            False,
        ),
        ("backend: 'bot:run'", "input: hi", False),
    ],
    ids=["nothing", "passages", "retrieval tool", "other tool", "named tool", "own agent"],
)
def test_a_metric_of_passages_needs_passages_or_what_may_retrieve_them(
    folder, head, case, is_missing
):
    messages = told(folder, head, FAITHFUL, case)

    assert [NO_PASSAGES in one for one in messages] == [True] * is_missing


@pytest.mark.parametrize(
    ("metric", "case", "missing"),
    [
        (CORRECT, "input: hi, retrieval_context: [a]", "'ground_truth' in the case"),
        (CORRECT, "input: hi, retrieval_context: [a], ground_truth: x", None),
        (GROUNDED, "input: hi", "'files' or 'retrieval_context' in the case"),
        (GROUNDED, "input: hi, files: [{path: a.txt, type: text}]", None),
        (GROUNDED, "turns: [{input: hi, files: [{path: a.txt, type: text}]}, {input: b}]", None),
        (GROUNDED, "turns: [{input: hi}, {input: b}]", "'files' or 'retrieval_context'"),
        ("{metric: bleu, threshold: 0.5}", "input: hi", "write 'ground_truth' here or 'value'"),
        ("{metric: bleu, threshold: 0.5}", "input: hi, ground_truth: x", None),
    ],
)
def test_what_a_metric_needs_and_the_case_lacks_is_named(folder, metric, case, missing):
    messages = told(folder, PLAIN, metric, case)

    assert len(messages) == (0 if missing is None else 1), messages
    assert missing is None or missing in messages[0]


@pytest.mark.parametrize(("metric", "is_used"), [(CORRECT, True), (FAITHFUL, False)])
def test_a_ground_truth_that_a_metric_takes_is_compared_with_something(folder, metric, is_used):
    case = "input: hi, retrieval_context: [a], ground_truth: x"
    folder.write("agent.yaml", HEAD % (PLAIN, metric, case))

    findings = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    told_so = [one.path for one in findings if "no metric compares with it" in one.message]
    assert told_so == ([] if is_used else ["test_cases[1].ground_truth"])


def test_a_retrieval_tool_that_the_agent_does_not_have_is_an_error(folder):
    head = f"{PLAIN}\nretrieval_tools: [serch]\ntools: [{{{RETRIEVAL}: false}}]"

    [message] = told(folder, head, FAITHFUL, "input: hi")

    assert message == "unknown tool 'serch'; did you mean 'search'? known: search"
