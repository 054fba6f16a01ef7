"""Metrics of DeepEval about a conversation of several turns."""

from collections.abc import Mapping
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Turn
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator
from holodeck.lib.evaluators.deepeval.cases import to_turn
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.metrics.deepeval import RoleAdherenceMetric


class ConversationEvaluator(DeepEvalBaseEvaluator):
    """Scores a conversation, given as `turns`: each a Turn, or a mapping with its keys."""

    PARAM_SPEC = ParamSpec(required=frozenset({EvalParam.TURNS}))

    def _test_case(self, kwargs: Mapping[str, Any]) -> Any:
        messages = kwargs[EvalParam.TURNS]
        turns = [turn if isinstance(turn, Turn) else Turn(**turn) for turn in messages]
        roles = [turn.role for turn in turns]
        if "user" not in roles or "assistant" not in roles[roles.index("user") :]:
            raise EvaluationError(f"{self.metric} needs a user message that the agent answers")
        return adapter.library().cases.ConversationalTestCase(
            turns=[to_turn(turn) for turn in turns], chatbot_role=self._role()
        )

    def _role(self) -> str | None:
        return None


class ConversationCompletenessEvaluator(ConversationEvaluator):
    """The share of the user's requests that the conversation fulfills."""

    metric = "conversation_completeness"
    deepeval_class = "ConversationCompletenessMetric"
    counted = "intentions"
    without_items = "the judge found no request of the user"


class KnowledgeRetentionEvaluator(ConversationEvaluator):
    """The share of the agent's turns that forget nothing the user said."""

    metric = "knowledge_retention"
    deepeval_class = "KnowledgeRetentionMetric"
    without_items = "the judge found nothing to remember"

    def _item_count(self, metric: Any, case: Any) -> int:  # noqa: ARG002
        return len(metric.verdicts)


class TurnRelevancyEvaluator(ConversationEvaluator):
    """The share of the agent's turns that are relevant to the conversation before."""

    metric = "turn_relevancy"
    deepeval_class = "TurnRelevancyMetric"


class RoleAdherenceEvaluator(ConversationEvaluator):
    """The share of the agent's turns that stay in its role."""

    settings: RoleAdherenceMetric
    metric = "role_adherence"
    deepeval_class = "RoleAdherenceMetric"

    def _role(self) -> str | None:
        return adapter.clean_text(self.settings.chatbot_role)

    def _check(self, answer: JsonObject, metric: Any, case: Any) -> None:  # noqa: ARG002
        """Check that the judge lists only turns of the agent: those that leave its role, if any."""
        if "verdicts" not in answer:
            return
        named = [verdict["index"] for verdict in answer["verdicts"]]
        agents = [index for index, turn in enumerate(case.turns) if turn.role == "assistant"]
        for index in named:
            if index not in agents:
                raise ValueError(f"'index' is {index}; the assistant's messages are {agents}")
        if len(set(named)) < len(named):
            raise ValueError("'verdicts' names a message twice")
