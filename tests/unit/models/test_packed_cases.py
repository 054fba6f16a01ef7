"""Test cases that are packed are the same test cases."""

import copy
import gc
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.models import packed_cases
from holodeck.models.agent import Agent
from holodeck.models.packed_cases import PackedCases, cases_at, map_cases, pack
from holodeck.models.test_case import TestCaseModel

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = st.fixed_dictionaries(
    {"input": TEXTS.filter(str.strip)},
    optional={
        "ground_truth": TEXTS,
        "name": TEXTS.filter(str.strip),
        "tags": st.lists(TEXTS.filter(str.strip), max_size=2),
        "expected_tools": st.lists(st.sampled_from(["lookup", "order_status"]), max_size=2),
        "tool_order": st.booleans(),
        "only_expected_tools": st.booleans(),
        "retries": st.integers(0, 3),
        "context": st.dictionaries(TEXTS, st.none() | st.integers() | st.lists(TEXTS), max_size=2),
        "criteria": st.lists(st.sampled_from(["is polite", "names a price"]), unique=True),
    },
)
WITH_PARTS = [
    {"input": "a", "evaluations": [{"metric": "contains", "value": "b"}]},
    {"input": "a", "evaluations": [{"type": "standard", "metric": "bleu", "threshold": 0.5}]},
    {"turns": [{"input": "a", "ground_truth": "b"}, {"input": "c"}]},
    {"input": "a", "files": [{"path": "a.txt", "type": "text"}]},
    {"simulate": {"situation": "waits"}, "max_turns": 2, "criteria": ["is polite"]},
]


def a_case(values: dict[str, object]) -> TestCaseModel:
    return TestCaseModel.model_validate(values)


def packed(*cases: TestCaseModel) -> PackedCases:
    return PackedCases([pack(case) for case in cases])


def is_like(one: TestCaseModel, other: TestCaseModel) -> bool:
    """Whether nobody can tell them apart, the order of their keys included."""
    return (
        one == other
        and list(vars(one).items()) == list(vars(other).items())
        and one.model_fields_set == other.model_fields_set
        and one.model_dump_json() == other.model_dump_json()
        and repr(one) == repr(other)
    )


@given(PLAIN)
def test_a_plain_case_is_the_same_after_it_was_packed(values: dict[str, object]) -> None:
    try:
        case = a_case(values)
    except ValidationError:
        return
    assert isinstance(pack(case), bytes)
    assert is_like(packed(case)[0], case)


@pytest.mark.parametrize("values", WITH_PARTS)
def test_the_parts_of_a_case_stay_the_same_objects(values: dict[str, object]) -> None:
    case = a_case(values)
    assert packed(case)[0] is case


def test_a_case_of_a_class_of_the_user_stays_as_it_is() -> None:
    class Own(TestCaseModel):
        __test__ = False

    case = Own(input="a")
    assert packed(case)[0] is case


def test_cases_share_no_list() -> None:
    cases = packed(a_case({"input": "a"}))
    cases[0].tags.append("b")
    assert cases[0].tags == []


def test_they_behave_like_a_list() -> None:
    listed = [a_case({"input": f"{at}", "name": f"case {at}"}) for at in range(5)]
    cases = packed(*listed)
    assert cases == listed
    assert listed == cases
    assert cases != listed[:4]
    assert list(reversed(cases)) == listed[::-1]
    assert cases[1:3] == listed[1:3]
    assert cases[-1] == listed[-1]
    assert cases + listed[:1] == listed + listed[:1]
    assert listed[2] in cases
    assert cases_at(cases, [3, 0]) == cases_at(listed, [3, 0]) == [listed[3], listed[0]]
    assert pickle.loads(pickle.dumps(cases)) == copy.deepcopy(cases) == listed
    with pytest.raises(IndexError):
        cases[5]


@pytest.mark.parametrize("are_packed", [False, True])
def test_changing_none_of_the_cases_returns_them(are_packed: bool) -> None:
    listed = [a_case({"input": "a"}), a_case(WITH_PARTS[0])]
    cases = packed(*listed) if are_packed else listed
    assert map_cases(cases, lambda _, case: case) is cases
    changed = map_cases(
        cases, lambda at, case: case.model_copy(update={"retries": 1}) if at else case
    )
    assert [case.retries for case in changed] == [None, 1]
    assert type(changed) is type(cases)
    assert cases == listed


def an_agent(cases: list[object]) -> Agent:
    return Agent.model_validate({"name": "a", "backend": "m:f", "test_cases": cases})


def test_many_cases_are_packed_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [{"input": f"{at}"} for at in range(3)]
    few = an_agent([*values])
    assert isinstance(few.test_cases, list)
    monkeypatch.setattr(packed_cases, "MOST_UNPACKED", 2)
    many = an_agent([*values])
    assert isinstance(many.test_cases, PackedCases)
    assert many == few
    assert many.model_dump_json() == few.model_dump_json()
    assert Agent.model_validate(many.model_copy()).test_cases is many.test_cases
    assert many.with_cases([2]).test_cases == [few.test_cases[2]]


@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_errors_of_many_cases_name_their_indexes(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [{"input": "a"}, {"inptu": "b"}, {"input": "c"}, {"input": 4}]
    with pytest.raises(ValidationError) as few:
        an_agent([*values])
    monkeypatch.setattr(packed_cases, "MOST_UNPACKED", 2)
    monkeypatch.setattr(packed_cases, "_AT_ONCE", at_once)
    with pytest.raises(ValidationError) as many:
        an_agent([*values])
    assert many.value.errors() == few.value.errors()


@pytest.mark.parametrize("twice", ["name", "id"])
def test_names_and_ids_of_many_cases_are_unique(
    twice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_cases, "MOST_UNPACKED", 1)
    with pytest.raises(ValidationError, match=rf"test_cases\[2\]\.{twice}': 'x' is already"):
        an_agent([{"input": "a", twice: "x"}, {"input": "b"}, {"input": "c", twice: "x"}])


ROWS = {
    "cases.jsonl": '{"input": "a", "ground_truth": "b"}\n\n{"input": "c", "retires": 2}\n',
    "cases.csv": "input,ground_truth\na,b\nc,{{d}}\n",
    "cases.json": '[\n{"input": "a"},\n{"input": "c", "ground_truth": "{{d}}"}]\n',
}


@pytest.mark.parametrize("name", ROWS)
def test_a_message_about_one_of_many_rows_is_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes are found before and after the rows were packed."""
    (tmp_path / name).write_text(ROWS[name], "utf-8")
    agent_file = tmp_path / "agent.yaml"
    agent_file.write_text(f"name: a\nbackend: m:f\ntest_cases_file: {name}\n", "utf-8")
    monkeypatch.chdir(tmp_path)

    def found() -> list[str]:
        try:
            agent = ConfigLoader().load_agent_yaml("agent.yaml")
        except ConfigError as error:
            return [str(error)]
        paths = [(), ("input",), ("ground_truth",), ("tags",)]
        return [
            agent.location("test_cases", at, *path)
            + str(agent.source_path("test_cases", at, *path))
            for at in range(2)
            for path in paths
        ]

    few = found()
    monkeypatch.setattr(packed_cases, "MOST_UNPACKED", 1)
    monkeypatch.setattr("holodeck.config.cases.rows.MANY_ITEMS", 1)
    assert found() == few


def test_many_cases_take_little_memory() -> None:
    """A quarter of a kilobyte for a question and an answer, where an object takes two."""
    import tracemalloc

    values = [{"input": f"Say case-{at:06} please", "ground_truth": "ok"} for at in range(10_001)]
    tracemalloc.start()
    try:
        agent = an_agent([*values])
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(agent.test_cases, PackedCases)
    assert size < 300 * len(values)
