"""What a result depends on: the hash changes with it, and with nothing else."""

import pytest

from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.models.agent import Agent
from support.folder import write_files

AGENT = {
    "name": "a",
    "model": {"provider": "openai", "name": "m", "api_key": "one"},
    "instructions": {"file": "instructions.md"},
    "tools": [{"type": "function", "name": "t", "file": "tools.py", "function": "t"}],
    "evaluations": {"metrics": [{"metric": "contains", "value": "x"}, {"metric": "g:check"}]},
    "test_cases": [
        {"name": "shared", "input": "hi"},
        {"name": "own", "input": "hi", "evaluations": [{"metric": "contains", "value": "y"}]},
        {"name": "file", "input": "hi", "files": [{"path": "notes.txt", "type": "text"}]},
    ],
}
FILES = {"instructions.md": "Be kind.", "tools.py": "def t(): ...", "g.py": "", "notes.txt": "n"}
ALL = {"shared", "own", "file"}


@pytest.fixture
def touched(tmp_path):
    """The names of the cases whose hash differs after a change of the agent or of files."""

    def taken(agent, files):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        made = fingerprint_of(Agent.model_validate(agent).with_base_dir(tmp_path))
        return {one.name: h for one, h in zip(made.cases, made.hashes, strict=True)}

    def compare(agent=None, files=None):
        before, after = taken(AGENT, FILES), taken(AGENT | (agent or {}), FILES | (files or {}))
        return {name for name in before if before[name] != after.get(name)}

    return compare


def first_case(**changes):
    first, *others = AGENT["test_cases"]
    return {"test_cases": [first | changes, *others]}


@pytest.mark.parametrize(
    ("agent", "files", "names"),
    [
        ({}, {}, set()),
        ({"description": "other", "execution": {"llm_timeout": 5}}, {}, set()),
        ({"model": AGENT["model"] | {"api_key": "another"}}, {}, set()),
        ({"model": AGENT["model"] | {"temperature": 0.5}}, {}, ALL),
        ({}, {"instructions.md": "Be brief."}, ALL),
        ({}, {"tools.py": "def t(): return 1"}, ALL),
        ({"evaluations": None}, {}, {"shared", "file"}),
        ({}, {"g.py": "x = 1"}, {"shared", "file"}),
        ({}, {"notes.txt": "other"}, {"file"}),
        (first_case(input="ho"), {}, {"shared"}),
        (first_case(ground_truth="ho"), {}, {"shared"}),
    ],
    ids=["nothing", "notes", "key", "model", "text", "tool", "metrics", "grader", "file", "input",
         "truth"],
)  # fmt: skip
def test_a_change_touches_the_cases_that_depend_on_it(touched, agent, files, names):
    assert touched(agent, files) == names


def test_a_changed_document_that_a_tool_searches_touches_every_case(touched, tmp_path):
    (tmp_path / "docs").mkdir()
    tool = {"type": "vectorstore", "name": "search", "source": "docs"}
    agent = {"tools": [*AGENT["tools"], tool]}
    before = touched(agent, {"docs/a.md": "one"})

    def hashes():
        made = fingerprint_of(Agent.model_validate(AGENT | agent).with_base_dir(tmp_path))
        return made.hashes

    first = hashes()
    (tmp_path / "docs/a.md").write_text("two")

    assert before == ALL
    assert not set(first) & set(hashes())


@pytest.mark.parametrize("keys", [{"code": "../src"}, {}], ids=["code", "pyproject"])
def test_the_hash_changes_with_code_outside_of_the_agents_folder(tmp_path, keys):
    write_files(tmp_path, {"evals/agent.yaml": "", "src/shop/desk.py": "A = 1"})
    if not keys:
        (tmp_path / "pyproject.toml").touch()
    values = {"name": "a", "backend": "shop.desk:agent", "test_cases": [{"input": "hi"}], **keys}
    agent = Agent.model_validate(values).with_base_dir(tmp_path / "evals")
    before = fingerprint_of(agent).hashes

    write_files(tmp_path, {"src/shop/desk.py": "A = 2"})

    assert fingerprint_of(agent).hashes != before
