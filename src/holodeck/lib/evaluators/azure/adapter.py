"""The door to azure-ai-evaluation: the only file that imports it."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holodeck.errors import EvaluationError, MissingExtra
from holodeck.lib.evaluators.azure.prompt import Ask, JudgedPrompt

Grader = Callable[..., Awaitable[Mapping[str, Any]]]
"""An evaluator of the library: inputs to the keys of its result."""

_NOWHERE = {"type": "openai", "base_url": "http://judge.invalid/v1", "api_key": "-", "model": "-"}
"""The library asks for an endpoint; it is never used, and its name can never be found."""


class _NoCredential:
    """Given where the library would look for credentials of Azure."""

    def get_token(self, *_: Any, **__: Any) -> Any:
        raise EvaluationError("judges of holodeck bring their own key")


def load_evaluator(name: str, ask: Ask, *, with_query: bool = False) -> Grader:
    """The library's evaluator of that class, whose prompts `ask` answers.

    Blocks; raises MissingExtra. `with_query` is for groundedness, which has another prompt then.
    """
    evaluator = _class(name)(_NOWHERE, credential=_NoCredential())
    if with_query:
        evaluator._ensure_query_prompty_loaded()  # noqa: SLF001 - done by its sync call only
    evaluator._flow = JudgedPrompt(evaluator._flow, ask)  # noqa: SLF001 - see docs/decisions
    called: Grader = evaluator._to_async()  # noqa: SLF001 - the way its batches call it
    return called


def load_safety_evaluator(
    name: str, project: str | Mapping[str, str], credential: Any
) -> Callable[..., Any]:
    """An evaluator that a project in Azure computes. Blocks when called; raises MissingExtra."""
    evaluator: Callable[..., Any] = _class(name)(credential, project)
    return evaluator


def credential() -> Any:
    """Whoever is signed in to Azure, by whatever means; nothing is sent yet."""
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise MissingExtra("azure", "azure_ai_project") from error
    return DefaultAzureCredential()


def _class(name: str) -> Any:
    try:
        import azure.ai.evaluation as library
    except ImportError as error:
        raise MissingExtra("azure", name) from error
    # it announces in the log that its classes may change, which is for us to follow
    logging.getLogger("azure.ai.evaluation._common._experimental").setLevel(logging.ERROR)
    return getattr(library, name)
