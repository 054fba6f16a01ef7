"""What all metrics share that ask a judge."""

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import BaseEvaluator, RetryConfig
from holodeck.lib.judging.judge import Judge
from holodeck.lib.judging.judges import Judges
from holodeck.models.llm import LLMProvider

DEFAULT_THRESHOLD = 0.5


class JudgedEvaluator(BaseEvaluator):
    """A metric whose score a model gives.

    Args:
        model_config: The model that judges; needed where no `judge` is given.
        threshold: Score from 0 to 1 to reach.
        timeout: Seconds for one evaluation, waiting for a slot not counted; None for no limit.
        retry_config: How often an evaluation is tried again. The judge's requests are retried by
            themselves, so this is for what a library makes of them.
        judge: The judge, where several metrics share one.
    """

    def __init__(
        self,
        *,
        model_config: LLMProvider | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        timeout: float | None = 60.0,
        retry_config: RetryConfig | None = None,
        judge: Judge | None = None,
    ) -> None:
        super().__init__(timeout, retry_config)
        self.model_config = model_config
        self.threshold = threshold
        self._judge = judge

    @property
    def judge(self) -> Judge:
        """Who is asked. Raises ConfigError if nobody was named."""
        if self._judge is None:
            if self.model_config is None:
                raise ConfigError("model", f"{self.name} needs a model that judges")
            self._judge = Judges().of(self.model_config)
        return self._judge
