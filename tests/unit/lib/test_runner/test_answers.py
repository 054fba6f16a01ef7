"""Which recorded answer a case is graded by when a run is graded again."""

from dataclasses import replace
from pathlib import Path

import pytest

from fakes import ScriptedBackend
from holodeck.lib.records.fingerprint import dump_cases, fingerprint_of
from holodeck.lib.records.run_store import Run
from holodeck.lib.secrets.redact import Redactor
from holodeck.models.records.record import CaseFinished, RunHead
from support.agents import an_agent, contains, executor_of
from support.rescore import rescore

ONE = {"suite": "one", "name": "t", "input": "Who?", "evaluations": [contains("first")]}
TWO = {"suite": "two", "name": "t", "input": "Who?", "evaluations": [contains("first")]}


class Told(ScriptedBackend):
    """Takes the context of a case."""

    def in_context(self, context):
        return self


async def recorded(tmp_path, *cases, redactor=Redactor()):  # noqa: B008 - holds nothing
    """A run in which the first case was answered with `first`, the second with `second`."""
    answers = iter(["first", "second"])
    agent = an_agent(*cases)
    backend = Told(lambda _: next(answers))
    fingerprint = fingerprint_of(agent)
    report = await executor_of(tmp_path, agent, backend).execute_tests()
    started = RunHead(
        id="x",
        started="2026-01-01T00:00:00+00:00",
        agent_name=agent.name,
        agent_config_path="agent.yaml",
        cases=list(fingerprint.cases),
        config=redactor.redact_report({**fingerprint.config, "test_cases": [*dump_cases(agent)]}),
    )
    finished = {
        at: CaseFinished(index=at, hash="x", result=one) for at, one in enumerate(report.results)
    }
    return Run(path=Path("run.jsonl"), started=started, finished=finished, ended=None)


async def graded(run, *cases):
    found = await rescore(an_agent(*cases), run)
    return [(one.suite or one.test_id, one.agent_response) for one in found.report.results]


async def test_cases_of_one_name_in_two_suites_keep_their_answers_when_the_suites_change_places(
    tmp_path,
):
    run = await recorded(tmp_path, ONE, TWO)

    assert await graded(run, TWO, ONE) == [("two", "second"), ("one", "first")]


async def test_an_answer_of_another_suite_grades_no_case(tmp_path):
    run = await recorded(tmp_path, ONE)

    found = await rescore(an_agent(TWO), run)

    assert (found.report.results, found.ungraded, found.unused) == ([], ("t",), ("t",))


@pytest.mark.parametrize("more", [{}, {"ground_truth": "first"}], ids=["unchanged", "changed"])
async def test_cases_of_the_same_words_keep_their_answers_by_their_ids(tmp_path, more):
    cases = [{"id": one, "input": "Who?", "expected_tools": []} for one in ("a", "b")]
    run = await recorded(tmp_path, *cases)

    now = [one | more for one in reversed(cases)]

    assert await graded(run, *now) == [("b", "second"), ("a", "first")]


async def test_the_answer_to_a_case_of_another_id_grades_no_case(tmp_path):
    cases = [{"id": one, "input": "Who?", "expected_tools": []} for one in ("a", "b")]
    run = await recorded(tmp_path, *cases)

    assert await graded(run, {"id": "c", "input": "Who?", "expected_tools": []}) == []


async def test_cases_without_ids_keep_their_answers_by_all_that_stands_in_them(tmp_path):
    cases = [{"input": "Who?", "tags": [one], "expected_tools": []} for one in ("a", "b")]
    run = await recorded(tmp_path, *cases)

    found = await rescore(an_agent(*reversed(cases)), run)

    told = [(one.tags, one.agent_response) for one in found.report.results]
    assert told == [(["b"], "second"), (["a"], "first")]


async def test_a_report_of_what_was_graded_again_has_the_present_tags(tmp_path):
    run = await recorded(tmp_path, ONE)

    found = await rescore(an_agent(ONE | {"tags": ["new"]}), run)

    assert found.report.results[0].tags == ["new"]


def in_context(**context):
    return {"name": "t", "input": "Who?", "context": context, "evaluations": [contains("first")]}


@pytest.mark.parametrize(
    "now",
    [in_context(user="b"), {"name": "t", "input": "Who?", "evaluations": [contains("first")]}],
    ids=["another", "none"],
)
async def test_an_answer_given_in_one_context_grades_no_case_with_another(tmp_path, now):
    run = await recorded(tmp_path, in_context(user="a"))

    found = await rescore(an_agent(now), run)

    assert (found.report.results, found.ungraded, found.unused) == ([], ("t",), ("t",))


async def test_cases_of_the_same_words_keep_the_answers_of_their_contexts(tmp_path):
    unnamed = [in_context(user=name) | {"name": None} for name in "ab"]
    run = await recorded(tmp_path, *unnamed)
    now = [one | {"tags": ["new"]} for one in reversed(unnamed)]

    assert [answer for _, answer in await graded(run, *now)] == ["second", "first"]


async def test_what_a_record_hides_of_a_context_does_not_part_it_from_its_case(tmp_path):
    told = {"user": "a", "is_new": None, "ids": [1, {"key": "hidden-value"}], "password": "short"}
    redactor = Redactor(["hidden-value"])
    run = await recorded(tmp_path, in_context(**told), redactor=redactor)
    now = an_agent(in_context(**dict(reversed(told.items()))))

    found = await rescore(now, run, redactor)

    assert "hidden-value" not in str(run.started.config)
    assert [one.agent_response for one in found.report.results] == ["first"]


async def test_a_record_that_does_not_tell_its_contexts_is_graded_as_ever(tmp_path):
    run = await recorded(tmp_path, in_context(user="a"))
    unknown = replace(run, started=run.started.model_copy(update={"config": {}}))

    assert len(await graded(unknown, in_context(user="b"))) == 1


async def test_secrets_of_expectations_that_were_written_since_are_not_in_the_report(tmp_path):
    run = await recorded(tmp_path, ONE)
    now = an_agent(ONE | {"ground_truth": "first hidden-value"})

    found = await rescore(now, run, Redactor(["hidden-value"]))

    assert "hidden-value" not in found.report.to_json()
