"""What the settings of a run say about its cases: command line > case > all other levels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holodeck.errors import ConfigError
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.pass_bar import require_reachable_bar
from holodeck.models.test_case import TestCaseModel

_GROUPS = (
    ("retries",),
    ("repeat",),
    ("min_pass", "min_pass_rate"),
    ("stop_early",),
    ("cache_key",),
)
"""Keys of a case that are settings of the run too; those of a group say the same."""
_BAR = ("min_pass_rate", "min_pass")


@dataclass(frozen=True)
class _Given:
    """Settings of one group that somebody set."""

    values: Mapping[str, Any]
    overrules: bool
    """Whether they hold for cases too that say something themselves."""


def with_case_settings(agent: Agent, settings: ExecutionConfig) -> Agent:
    """The agent, each case of which says itself how it is run; the same if done twice.

    What nobody set stays unset. Raises ConfigError for what makes no sense together.
    """
    given = [one for group in _GROUPS if (one := _given(group, settings)) is not None]
    overruled = _overruled(settings)
    cases = agent.test_cases or []
    changed = [_with(_without(case, overruled), given) for case in cases]
    for index, case in enumerate(changed):
        _check(agent, index, case)
    if all(new is old for new, old in zip(changed, cases, strict=True)):
        return agent
    return agent.model_copy(update={"test_cases": changed})


def _given(group: tuple[str, ...], settings: ExecutionConfig) -> _Given | None:
    values = {name: getattr(settings, name) for name in group}
    said = [name for name in group if values[name] is not None]
    if all(settings.source_of(name) == "default" for name in said):
        return None
    return _Given(values, any(map(settings.is_from_command_line, said)))


def _with(case: TestCaseModel, given: list[_Given]) -> TestCaseModel:
    update: dict[str, Any] = {}
    for one in given:
        if one.overrules or all(getattr(case, name) is None for name in one.values):
            update |= one.values
    return case.model_copy(update=update) if update else case


def _check(agent: Agent, index: int, case: TestCaseModel) -> None:
    if case.retry_on is not None and case.retries is None:
        _refuse(
            (agent, index, case),
            "retry_on",
            "'retry_on' says after what the case is run again, but nothing says how often;"
            " add 'retries: 1', say",
        )
    bar = next((name for name in _BAR if getattr(case, name) is not None), None)
    if bar is not None and case.repeat is None:
        _refuse(
            (agent, index, case),
            bar,
            f"{bar!r} says how many repetitions must pass, but nothing says how many there are;"
            " add 'repeat: 5', say",
        )
    try:
        require_reachable_bar(case.repeat, case.min_pass, case.min_pass_rate)
    except ValueError as error:
        _refuse((agent, index, case), "min_pass", str(error))


def _overruled(settings: ExecutionConfig) -> list[str]:
    """Keys of cases that give way to the command line, which holds for the run instead."""
    said = settings.is_from_command_line
    flags = {"timeout": "llm_timeout", "fail_fast": "fail_fast"}
    return [key for key, setting in flags.items() if said(setting)]


def _without(case: TestCaseModel, keys: list[str]) -> TestCaseModel:
    said = [key for key in keys if getattr(case, key) is not None]
    return case.model_copy(update=dict.fromkeys(said)) if said else case


def _refuse(where: tuple[Agent, int, TestCaseModel], key: str, why: str) -> None:
    agent, index, case = where
    place = agent.place("test_cases", index, key)
    raise ConfigError(f"{place}: {case.name or f'test_cases[{index}]'}", why)
