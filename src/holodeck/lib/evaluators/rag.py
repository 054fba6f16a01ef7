"""Metrics about retrieved passages: one row each, which says what to install."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from holodeck.errors import MissingExtra, NotSupportedYet
from holodeck.lib.evaluators.base import BaseEvaluator, RetryConfig
from holodeck.models.evaluation import RAGMetricType
from holodeck.models.llm import LLMProvider


class RAGEvaluatorConstructor(Protocol):
    """How every metric about retrieved passages is made."""

    def __call__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = 0.5,
        include_reason: bool = True,
        timeout: float | None = 60.0,
        retry_config: RetryConfig | None = None,
    ) -> BaseEvaluator:
        """A metric that asks the judge `model_config`. Raises ConfigError."""
        ...


@dataclass(frozen=True, slots=True)
class _NeedsJudge:
    """A metric of the format whose judge this version does not have."""

    metric: RAGMetricType

    def __call__(
        self,
        *,
        model_config: LLMProvider | None = None,  # noqa: ARG002 - the protocol's signature
        threshold: float = 0.5,  # noqa: ARG002
        include_reason: bool = True,  # noqa: ARG002
        timeout: float | None = 60.0,  # noqa: ARG002
        retry_config: RetryConfig | None = None,  # noqa: ARG002
    ) -> BaseEvaluator:
        if find_spec("deepeval") is None:
            raise MissingExtra("deepeval", f"metric {self.metric.value}")
        raise NotSupportedYet(f"metric {self.metric.value}", "it waits for judges")


RAG_EVALUATOR_MAP: Mapping[RAGMetricType, RAGEvaluatorConstructor] = {
    metric: _NeedsJudge(metric) for metric in RAGMetricType
}
