"""What every way to a model says about it: sampling, the format of the answer, the shared limit."""

import hashlib
from typing import Any

from holodeck.models.llm import LLMProvider, ProviderEnum


def endpoint_key(llm: LLMProvider) -> str:
    """What shares one limit: provider, address and key, of which only a hash is told."""
    key = "" if llm.api_key is None else llm.api_key.get_secret_value()
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{llm.provider.value} {llm.endpoint or llm.name} ({digest})"


def sampling(llm: LLMProvider, schema: dict[str, Any] | None) -> dict[str, Any]:
    """The settings of a chat completion, in OpenAI's names."""
    limit = "max_completion_tokens" if _speaks_new_names(llm) else "max_tokens"
    return drop_none(
        {
            "temperature": llm.temperature,
            "top_p": llm.top_p,
            limit: llm.max_tokens,
            "response_format": _wrapped(schema),
        }
    )


def drop_none(values: dict[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _speaks_new_names(llm: LLMProvider) -> bool:
    """OpenAI has renamed the limit and refuses the old name for its newer models; servers that
    imitate it often know the old one only."""
    own_server = llm.provider is ProviderEnum.OPENAI and llm.endpoint is None
    return own_server or llm.provider is ProviderEnum.AZURE_OPENAI


def _wrapped(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is None or "json_schema" in schema:
        return schema
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }
