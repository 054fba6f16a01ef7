"""The errors and the judges of DeepEval's metrics, under the names of HoloDeck's Python API."""

from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.models.llm import LLMProvider, ProviderEnum


class DeepEvalError(EvaluationError):
    """A metric of DeepEval could not be computed."""


class ProviderNotSupportedError(DeepEvalError):
    """The judge's provider is unknown."""


class DeepEvalModelConfig(LLMProvider):
    """A judge model, as `model_config` of a metric; an `LLMProvider` does the same.

    Args:
        provider: The provider of the model.
        model_name: The name of the model.
        deployment_name: The deployment, instead of a name; for Azure.
        temperature: Sampling temperature.
        settings: Further settings of an `LLMProvider`, such as `endpoint` and `api_key`.

    Raises:
        ProviderNotSupportedError: The provider is unknown.
    """

    def __init__(
        self,
        provider: ProviderEnum | str = ProviderEnum.OLLAMA,
        model_name: str = "gpt-oss:20b",
        *,
        deployment_name: str | None = None,
        temperature: float | None = 0.0,
        **settings: Any,
    ) -> None:
        if provider not in list(ProviderEnum):
            hint = did_you_mean_or_list(str(provider), [known.value for known in ProviderEnum])
            raise ProviderNotSupportedError(f"unknown provider {str(provider)!r}{hint}")
        name = deployment_name or model_name
        super().__init__(provider=provider, name=name, temperature=temperature, **settings)

    @property
    def model_name(self) -> str:
        """The name of the model, or of the deployment."""
        return self.name


DEFAULT_MODEL_CONFIG = DeepEvalModelConfig()
