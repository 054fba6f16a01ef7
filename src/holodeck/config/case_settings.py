"""What the settings of a run say about its cases: command line > case > all other levels."""

from collections.abc import Iterator
from typing import Any

from holodeck.errors import ConfigError
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import TestCaseModel

_OF_CASES = ("retries",)
"""Keys of a case that are settings of the run too."""


def with_case_settings(agent: Agent, settings: ExecutionConfig) -> Agent:
    """The agent, each case of which says itself how it is run; the same if done twice.

    What nobody set stays unset. Raises ConfigError for what makes no sense together.
    """
    given = dict(_given(settings))
    is_timed = settings.is_from_command_line("llm_timeout")
    cases = agent.test_cases or []
    changed = [_with(_untimed(case) if is_timed else case, given) for case in cases]
    for index, case in enumerate(changed):
        _check(agent, index, case)
    if all(new is old for new, old in zip(changed, cases, strict=True)):
        return agent
    return agent.model_copy(update={"test_cases": changed})


def _given(settings: ExecutionConfig) -> Iterator[tuple[str, tuple[Any, bool]]]:
    """The settings of cases that somebody set, each with whether it overrules the cases."""
    for name in _OF_CASES:
        value, source = getattr(settings, name), settings.source_of(name)
        if value is not None and source != "default":
            yield name, (value, settings.is_from_command_line(name))


def _check(agent: Agent, index: int, case: TestCaseModel) -> None:
    if case.retry_on is not None and case.retries is None:
        raise ConfigError(
            f"{agent.place('test_cases', index, 'retry_on')}: {case.name or 'a case'}",
            "'retry_on' says after what the case is run again, but nothing says how often;"
            " add 'retries: 1', say",
        )


def _untimed(case: TestCaseModel) -> TestCaseModel:
    """The case without a limit of its own, which `--timeout` overrules."""
    return case if case.timeout is None else case.model_copy(update={"timeout": None})


def _with(case: TestCaseModel, given: dict[str, tuple[Any, bool]]) -> TestCaseModel:
    update = {
        name: value
        for name, (value, overrules) in given.items()
        if overrules or getattr(case, name) is None
    }
    return case.model_copy(update=update) if update else case
