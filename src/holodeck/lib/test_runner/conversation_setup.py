"""Who plays in the cases of an agent besides the agent: made once, before anything runs."""

from collections.abc import Callable
from typing import Any

from holodeck.config.check_cases import NO_SIMULATOR
from holodeck.errors import ConfigError
from holodeck.lib.chat.model import ChatModel
from holodeck.lib.conversation.response_cache import ResponseCache
from holodeck.lib.registry import load_callable
from holodeck.lib.test_runner.conversation_runner import ConversationRunner
from holodeck.lib.test_runner.grading import EvaluatorSet
from holodeck.models.agent import Agent
from holodeck.models.llm import LLMProvider
from holodeck.models.script import kind_of, value_of
from holodeck.models.test_case import TestCaseModel


class ConversationSetup:
    """The plays of every case with a script or a simulated user.

    Raises ConfigError for a simulated user without a model, and for code that cannot be loaded.
    """

    def __init__(self, agent: Agent, evaluator_set: EvaluatorSet) -> None:
        self._agent = agent
        self._judges = evaluator_set.judge_provider.judges
        self._case_caches = evaluator_set.case_caches
        self._simulators: dict[str, ChatModel] = {}
        self._plays = {
            index: ConversationRunner(
                case=case,
                simulator=None if case.simulate is None else self._simulator(case, index),
                criteria=evaluator_set.checks_of(index).criteria,
                code=self._code(case, index),
                response_cache=None if case.simulate is None else self._response_cache(case, index),
            )
            for index, case in enumerate(agent.test_cases or [])
            if case.is_played
        }

    def play_of(self, index: int) -> ConversationRunner | None:
        """What is played in the case at that place in the file; None if its turns are written."""
        return self._plays.get(index)

    async def close(self) -> None:
        """Let go of the connections of the running event loop."""
        for model in self._simulators.values():
            await model.close()

    def _code(self, case: TestCaseModel, index: int) -> dict[int, Callable[..., Any]]:
        """The functions that the script calls. Raises ConfigError."""
        targets = {
            at: value_of(one) for at, one in enumerate(case.script or ()) if kind_of(one) == "call"
        }
        place = self._agent.place
        return {
            at: load_callable(
                target,
                self._agent.base_dir,
                where=place("test_cases", index, "script", at, "call"),
            )
            for at, target in targets.items()
        }

    def _response_cache(self, case: TestCaseModel, index: int) -> ResponseCache | None:
        """Who keeps what the simulated user says, if anybody does. Raises ConfigError."""
        llm = self._agent.simulator_of(case)
        where = self._agent.place("test_cases", index, "simulate")
        return None if llm is None else self._case_caches.of(case, llm, where)

    def _simulator(self, case: TestCaseModel, index: int) -> ChatModel:
        """The model that plays the user; one for all cases that name the same."""
        llm = self._agent.simulator_of(case)
        if llm is None:
            raise ConfigError(self._agent.place("test_cases", index, "simulate"), NO_SIMULATOR)
        key = _key(llm)
        if key not in self._simulators:
            is_own = llm is self._agent.model
            self._simulators[key] = self._judges.model(llm, is_agents_own=is_own)
        return self._simulators[key]


def _key(llm: LLMProvider) -> str:
    return f"{llm!r} {llm.api_key.get_secret_value() if llm.api_key else ''}"
