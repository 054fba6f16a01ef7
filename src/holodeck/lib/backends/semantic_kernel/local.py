"""Completions of a local model, which runs in the process."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.lib.llm.completion import Completion, RawToolCall
from holodeck.lib.processes.threads import run_in_thread
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from holodeck.lib.llm.client import RequestStats
    from holodeck.lib.llm.retry import RetryConfig
    from holodeck.lib.local_models.runtime import LocalModel
    from holodeck.lib.local_models.store import ModelStore

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class LocalWeights:
    """Finds and downloads the weights of local models."""

    store: "ModelStore"
    base_dir: Path
    progress: Progress

    def path_of(self, name: str) -> Path:
        """Return the weights of a model, downloaded if missing. Raises ModelStoreError."""
        return self.store.resolve(name, self.base_dir, self.progress)


class LocalCompletions:
    """Completes conversations with a known model or a GGUF file; a grammar limits its calls.

    Args:
        name: The model, loaded at first use.
        weights: Finds its weights.
    """

    def __init__(self, name: str, weights: LocalWeights) -> None:
        self._name = name
        self._weights = weights
        self._model: LocalModel | None = None

    async def prepare(self) -> None:
        """Download and load the model. Raises ModelStoreError and MissingExtra."""
        await self._load()

    async def close(self) -> None:
        """Do nothing: the model stays loaded for further requests."""

    async def complete_body(
        self, body: Mapping[str, Any], stats: "RequestStats", _: "RetryConfig | None" = None
    ) -> Completion:
        """Return the completion for the body of a request."""
        from holodeck.lib.local_models.chat import reply_to
        from holodeck.lib.local_models.chat_request import ChatSettings

        settings = ChatSettings(
            temperature=body.get("temperature"),
            max_tokens=body.get("max_tokens"),
            top_p=body.get("top_p"),
            response_format=body.get("response_format"),
        )
        model = await self._load()
        reply = await reply_to(model, body["messages"], body.get("tools") or (), settings)
        usage = TokenUsage.of(reply.prompt_tokens, reply.completion_tokens)
        stats.meter.add(usage, self._name)
        calls = []
        if reply.call is not None:
            arguments = json.dumps(reply.call.arguments)
            calls.append(RawToolCall(reply.call_id, reply.call.name, arguments))
        return Completion(reply.text, calls, usage, finish_reason=reply.finish_reason)

    async def stream_body(
        self, body: Mapping[str, Any], stats: "RequestStats", retry: "RetryConfig | None" = None
    ) -> AsyncIterator[str | Completion]:
        """Yield the whole text as one piece, as the grammar's output cannot be split."""
        completion = await self.complete_body(body, stats, retry)
        if completion.text:
            yield completion.text
        yield completion

    async def _load(self) -> "LocalModel":
        if self._model is None:
            self._model = await run_in_thread(self._load_now, name="holodeck-model")
        return self._model

    def _load_now(self) -> "LocalModel":
        from holodeck.lib.local_models.runtime import LocalModel

        return LocalModel.load(self._weights.path_of(self._name))
