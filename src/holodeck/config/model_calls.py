"""Models of an agent.yaml that need an API key and have none."""

from collections.abc import Iterator
from contextlib import suppress

from holodeck.config.providers import missing_key_message
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import judge_model_of, needs_judge
from holodeck.models.agent import Agent
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.tool import PromptTool
from holodeck.models.tools.knowledge import HierarchicalDocumentTool, KnowledgeTool


def find_missing_keys(agent: Agent) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path of each model without its API key, and a message; unused judges need none."""
    reported = set()
    for path, role, model in called_models(agent):
        message = None if id(model) in reported else missing_key_message(model)
        if message is not None:
            reported.add(id(model))
            yield path, f"{role}: {message}" if role else message


def called_models(agent: Agent) -> Iterator[tuple[KeyPath, str, LLMProvider]]:
    """Yield the models that a run calls, each with its path and role; some more than once."""
    if agent.model is not None and not agent.has_own_model:
        yield ("model",), "", agent.model
    yield from _tool_models(agent)
    for path, metric in all_metrics(agent):
        judge = judge_model_of(agent, metric) if metric.enabled and needs_judge(metric) else None
        if judge is not None:
            yield path, f"the judge of {metric.label!r}", judge
    yield from conversation_models(agent)


def _tool_models(agent: Agent) -> Iterator[tuple[KeyPath, str, LLMProvider]]:
    """Yield the models of tools that have their own."""
    tools = agent.tools or []
    if agent.embedding_provider and any(isinstance(tool, KnowledgeTool) for tool in tools):
        yield ("embedding_provider",), "", agent.embedding_provider
    for index, tool in enumerate(tools):
        if isinstance(tool, HierarchicalDocumentTool):
            for key, model in (
                ("context_model", tool.context_model),
                ("reranker_model", tool.reranker_model if tool.enable_reranking else None),
            ):
                if model is not None:
                    yield ("tools", index, key), f"the tool {tool.name!r}", model
        if isinstance(tool, PromptTool) and tool.model is not None:
            yield ("tools", index, "model"), f"the prompt tool {tool.name!r}", tool.model


def embedding_models(agent: Agent) -> Iterator[LLMProvider]:
    """Yield the embedding models of tools that search documents."""
    for tool in agent.tools or []:
        if isinstance(tool, KnowledgeTool):
            # Imported here because few agents search documents.
            from holodeck.lib.knowledge.embeddings import embedding_llm  # noqa: PLC0415

            with suppress(ConfigError):  # found by the check of the tool
                if (model := embedding_llm(tool, agent)) is not None:
                    yield model


def conversation_models(agent: Agent) -> Iterator[tuple[KeyPath, str, LLMProvider]]:
    """Yield the models that judge criteria or simulate users, each with its path and role."""
    for number, case in enumerate(agent.test_cases or []):
        judge, user = agent.judge_model, agent.simulator_model(case)
        if case.uses_judge and judge is not None:
            key = "script" if case.criteria is None else "criteria"
            yield ("test_cases", number, key), f"the judge of {key!r}", judge
        if case.simulate is not None and user is not None:
            yield ("test_cases", number, "simulate"), "the simulated user", user


def all_metrics(agent: Agent) -> Iterator[tuple[KeyPath, MetricSettings]]:
    """Yield every metric of the file with its path."""
    for index, metric in enumerate(agent.evaluations.metrics if agent.evaluations else []):
        yield ("evaluations", "metrics", index), metric
    for number, case in enumerate(agent.test_cases or []):
        for at, part in case.parts:
            for key, metrics in part.metric_lists:
                for index, metric in enumerate(metrics):
                    yield ("test_cases", number, *at, key, index), metric
