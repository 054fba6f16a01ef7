"""No slip of the pen turns a failing run green.

The agent below fails for several reasons at once. Whatever is deleted, misspelled, doubled,
reordered or given another type in its file: it is refused, or it goes on failing. One slip may
well remove one expectation, which is the writer's right; it may not make the others vanish.
"""

import asyncio
import copy
import logging

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holodeck.config.checks.agent import check, raise_on_errors
from holodeck.config.loader import load_agent_with_config
from holodeck.errors import ExitCode, HoloDeckError
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.test_runner.executor import TestExecutor

METRICS = [
    {"metric": "contains", "value": "goodbye"},
    {"type": "standard", "metric": "exact_match", "threshold": 1.0, "fail_on_error": True},
    {"metric": "regex", "pattern": "^good", "ignore_case": True},
    {"metric": "f1_score", "threshold": 0.9},
]
FAILING = {
    "name": "parrot",
    "description": "repeats what it hears",
    "backend": "bot:answer",
    "execution": {"max_retries": 0, "llm_timeout": 60, "parallel_test_cases": 2},
    "evaluations": {"metrics": METRICS[:2]},
    "test_cases": [
        {
            "name": "one",
            "input": "hello",
            "ground_truth": "goodbye",
            "expected_tools": ["search", {"name": "look", "args": {"q": "x"}, "count": 1}],
            "tool_order": True,
            "evaluations": METRICS,
        },
        {
            "name": "two",
            "input": "hello again",
            "ground_truth": "goodbye",
            "expected_tools": ["search"],
            "forbidden_tools": ["erase"],
        },
        {"name": "three", "input": "hi", "ground_truth": "bye", "evaluations": METRICS[1:]},
    ],
}
BOT = "def answer(message):\n    return message\n"

OTHER_KINDS = [None, True, False, 0, 1, -1, 1.5, "", " ", "x", "true", [], {}, ["x"], {"x": 1}]


def places(value, path=()):
    """Every path in the tree but its root."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


@st.composite
def slips(draw):
    """The text of an agent.yaml with one or two slips in it, and what they were."""
    agent = copy.deepcopy(FAILING)
    done = [draw(st.sampled_from(SLIPS))(draw, agent) for _ in range(draw(st.integers(1, 2)))]
    text = yaml.safe_dump(agent, sort_keys=False)
    if draw(st.booleans()):
        text, slip = _text_slip(draw, text)
        done.append(slip)
    return text, done


def _picked(draw, agent, *, keys=False):
    """A container in the tree and a key of it."""
    found = [path for path in places(agent) if not keys or isinstance(path[-1], str)]
    if not found:
        return None
    *above, last = draw(st.sampled_from(found))
    container = agent
    for part in above:
        container = container[part]
    return container, last


def _delete(draw, agent):
    container, key = _picked(draw, agent, keys=True)
    del container[key]
    return f"deleted {key}"


def _misspell(draw, agent):
    container, key = _picked(draw, agent, keys=True)
    at = draw(st.integers(0, len(key)))
    new = draw(st.sampled_from([key[:at] + key[at + 1 :], key[:at] + "x" + key[at:], key.upper()]))
    entries = list(container.items())
    container.clear()
    container.update({new if name == key else name: value for name, value in entries})
    return f"{key} as {new}"


def _retype(draw, agent):
    container, key = _picked(draw, agent)
    container[key] = draw(
        st.sampled_from([*OTHER_KINDS, [container[key]], {"value": container[key]}])
    )
    return f"{key} as {container[key]!r}"


def _reorder(draw, agent):
    container, _ = _picked(draw, agent)
    if isinstance(container, list):
        container[:] = draw(st.permutations(container))
    else:
        entries = draw(st.permutations(list(container.items())))
        container.clear()
        container.update(entries)
    return "reordered"


def _double(draw, agent):
    container, key = _picked(draw, agent)
    if isinstance(container, list):
        container.append(copy.deepcopy(container[key]))
    else:
        container[f"{key}_2"] = copy.deepcopy(container[key])
    return f"doubled {key}"


def _move(draw, agent):
    """A key one level further up, as a wrong indentation makes it."""
    container, key = _picked(draw, agent, keys=True)
    agent[key] = container.pop(key)
    return f"moved {key} to the top"


SLIPS = [_delete, _misspell, _retype, _reorder, _double, _move]


def _text_slip(draw, text):
    lines = text.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    kind = draw(st.sampled_from(["double", "indent", "outdent", "comment", "cut", "tab", "anchor"]))
    if kind == "double":
        lines.insert(at, lines[at])
    elif kind == "cut":
        del lines[at + 1 :]
    else:
        line = lines[at]
        lines[at] = {
            "indent": f"  {line}",
            "outdent": line.removeprefix("  "),
            "comment": f"# {line}",
            "tab": f"\t{line}",
            "anchor": line.replace(": ", ": &a ", 1),
        }[kind]
    return "\n".join(lines) + "\n", f"{kind} line {at + 1}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("parrot")
    (path / "bot.py").write_text(BOT)
    logger = logging.getLogger("holodeck")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield path
    logger.setLevel(level)


def outcome(folder, text):
    """The exit code that `holodeck test` would give."""
    file = folder / "agent.yaml"
    file.write_text(text)

    async def run(agent, config):
        executor = TestExecutor(str(file), agent_config=agent, resolved_execution_config=config)
        try:
            return exit_code(await executor.execute_tests())
        finally:
            await executor.shutdown()

    try:
        agent, config, _ = load_agent_with_config(file)
        raise_on_errors(check(agent))
        return asyncio.run(run(agent, config))
    except HoloDeckError as error:
        return error.exit_code


def test_the_agent_fails_as_it_stands(folder):
    assert outcome(folder, yaml.safe_dump(FAILING, sort_keys=False)) == ExitCode.TEST_FAILED


@given(slips())
def test_no_slip_of_the_pen_turns_a_failing_run_green(folder, slip):
    text, _ = slip

    assert outcome(folder, text) != ExitCode.PASSED
