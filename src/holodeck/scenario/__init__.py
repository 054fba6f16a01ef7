"""Conversations as tests, in Python: `from holodeck import scenario`. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

from holodeck import __version__ as __version__
from holodeck.scenario.cache import scenario_cache as cache

if TYPE_CHECKING:
    from holodeck.lib.conversation.red_team.encodings import DEFAULT_TECHNIQUES, AttackTechnique
    from holodeck.lib.conversation.red_team.goat import (
        DEFAULT_GOAT_TECHNIQUES,
        GoatStrategy,
        Technique,
    )
    from holodeck.lib.conversation.red_team.strategies import (
        AttackerOutput,
        CrescendoStrategy,
        RedTeamStrategy,
    )
    from holodeck.scenario.agent_adapter import AgentAdapter
    from holodeck.scenario.caching import NotRecorded
    from holodeck.scenario.config import ModelConfig, ScenarioConfig, configure
    from holodeck.scenario.connected_agent import ConnectedAgentAdapter, ConnectedAgentCall
    from holodeck.scenario.evaluators import (
        EvaluationResult,
        EvaluatorMapping,
        ScenarioEvaluator,
        conversation,
        evaluator,
        field,
        scenario_source,
        trace,
        value,
    )
    from holodeck.scenario.judge_agent import JudgeAgent
    from holodeck.scenario.red_team_agent import RedTeamAgent
    from holodeck.scenario.scenario_executor import ScenarioExecutor, arun, run
    from holodeck.scenario.scenario_state import ScenarioState, ToolCall, ToolCalls, TurnView
    from holodeck.scenario.script import agent, fail, judge, message, proceed, succeed, user
    from holodeck.scenario.spans import scenario_only, setup_scenario_tracing, with_custom_scopes
    from holodeck.scenario.types import (
        AgentInput,
        AgentReturnTypes,
        AgentRole,
        CriterionResult,
        CriterionStatus,
        EndConversation,
        JudgmentRequest,
        ScenarioResult,
        ScriptStep,
    )
    from holodeck.scenario.user_simulator_agent import UserSimulatorAgent

_HOMES = {
    "agent_adapter": ["AgentAdapter"],
    "caching": ["NotRecorded"],
    "config": ["ModelConfig", "ScenarioConfig", "configure"],
    "connected_agent": ["ConnectedAgentAdapter", "ConnectedAgentCall"],
    "evaluators": [
        "EvaluationResult",
        "EvaluatorMapping",
        "ScenarioEvaluator",
        "conversation",
        "evaluator",
        "field",
        "scenario_source",
        "trace",
        "value",
    ],
    "events": [],
    "judge_agent": ["JudgeAgent"],
    "red_team_agent": ["RedTeamAgent"],
    "scenario_executor": ["ScenarioExecutor", "arun", "run"],
    "scenario_state": ["ScenarioState", "ToolCall", "ToolCalls", "TurnView"],
    "script": ["agent", "fail", "judge", "message", "proceed", "succeed", "user"],
    "spans": ["scenario_only", "setup_scenario_tracing", "with_custom_scopes"],
    "types": [
        "AgentInput",
        "AgentReturnTypes",
        "AgentRole",
        "CriterionResult",
        "CriterionStatus",
        "EndConversation",
        "JudgmentRequest",
        "ScenarioResult",
        "ScriptStep",
    ],
    "user_simulator_agent": ["UserSimulatorAgent"],
}
_RED_TEAM = {
    "encodings": ["DEFAULT_TECHNIQUES", "AttackTechnique"],
    "goat": ["DEFAULT_GOAT_TECHNIQUES", "GoatStrategy", "Technique"],
    "strategies": ["AttackerOutput", "CrescendoStrategy", "RedTeamStrategy"],
}
_HOME_OF = {
    name: f"{package}.{module}"
    for package, modules in ((__name__, _HOMES), ("holodeck.lib.conversation.red_team", _RED_TEAM))
    for module, names in modules.items()
    for name in names
}

__all__ = [
    "DEFAULT_GOAT_TECHNIQUES",
    "DEFAULT_TECHNIQUES",
    "AgentAdapter",
    "AgentInput",
    "AgentReturnTypes",
    "AgentRole",
    "AttackTechnique",
    "AttackerOutput",
    "ConnectedAgentAdapter",
    "ConnectedAgentCall",
    "CrescendoStrategy",
    "CriterionResult",
    "CriterionStatus",
    "EndConversation",
    "EvaluationResult",
    "EvaluatorMapping",
    "GoatStrategy",
    "JudgeAgent",
    "JudgmentRequest",
    "ModelConfig",
    "NotRecorded",
    "RedTeamAgent",
    "RedTeamStrategy",
    "ScenarioConfig",
    "ScenarioEvaluator",
    "ScenarioExecutor",
    "ScenarioResult",
    "ScenarioState",
    "ScriptStep",
    "Technique",
    "ToolCall",
    "ToolCalls",
    "TurnView",
    "UserSimulatorAgent",
    "agent",
    "arun",
    "cache",
    "configure",
    "conversation",
    "evaluator",
    "fail",
    "field",
    "judge",
    "message",
    "proceed",
    "run",
    "scenario_only",
    "scenario_source",
    "setup_scenario_tracing",
    "succeed",
    "trace",
    "user",
    "value",
    "with_custom_scopes",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return import_module(f"{__name__}.{name}")
    if name == "default_config":
        return import_module(f"{__name__}.config").ScenarioConfig.default_config
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
