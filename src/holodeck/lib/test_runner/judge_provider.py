"""Who judges which metric, and what a reader of the report must know about that."""

import logging

from holodeck.config.check_cases import NO_JUDGE
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.metric_table import judge_of
from holodeck.lib.judging.judge import Judge
from holodeck.lib.judging.judges import Judges
from holodeck.models.agent import Agent
from holodeck.models.evaluation import MetricSettings
from holodeck.models.llm import DEFAULT_LOCAL_MODEL, LLMProvider, ProviderEnum

logger = logging.getLogger(__name__)


class JudgeProvider:
    """The judges of an agent's metrics; says once what makes one hard to trust."""

    def __init__(self, agent: Agent, judges: Judges) -> None:
        self._agent = agent
        self.judges = judges
        self.notes: list[str] = []
        """What was said, for the report."""

    def judge_of(self, metric: MetricSettings, where: str) -> Judge:
        """Who judges the metric. Raises ConfigError if nobody is named."""
        llm = judge_of(self._agent, metric)
        if llm is None:
            raise ConfigError(
                where,
                f"{metric.label!r} needs a model that judges;"
                " write 'model' here or in 'evaluations'",
            )
        return self._judge(llm)

    def judge_of_criteria(self, where: str) -> Judge:
        """Who judges the criteria of cases. Raises ConfigError if nobody is named."""
        llm = self._agent.judging_model
        if llm is None:
            raise ConfigError(where, NO_JUDGE)
        return self._judge(llm)

    def _judge(self, llm: LLMProvider) -> Judge:
        self._warn(llm)
        return self.judges.of(llm, is_agents_own=llm is self._agent.model)

    def _warn(self, llm: LLMProvider) -> None:
        name = f"{llm.provider.value}/{llm.name}"
        agents = self._agent.model
        if agents is not None and _who(agents) == _who(llm):
            self.note(
                f"the judge {name} is the agent's own model, and models are kind to themselves;"
                " name another with 'evaluations.model'"
            )
        if llm.provider is ProviderEnum.LOCAL and llm.name == DEFAULT_LOCAL_MODEL:
            self.note(
                f"the judge {name} is too small to judge: its verdicts are close to chance;"
                " use 'qwen2.5-coder-1.5b-instruct' or a larger model"
            )

    def note(self, text: str) -> None:
        """Say something that a reader of the report must know, once."""
        if text not in self.notes:
            self.notes.append(text)
            logger.warning("%s", text)


def _who(llm: LLMProvider) -> tuple[str, str, str | None]:
    return llm.provider.value, llm.name, llm.endpoint
