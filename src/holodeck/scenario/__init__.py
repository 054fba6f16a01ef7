"""Conversations as tests, in Python: `from holodeck import scenario`."""

from holodeck import __version__ as __version__
from holodeck.lib.conversation import events as events
from holodeck.lib.conversation.attack_strategies import (
    DEFAULT_GOAT_TECHNIQUES,
    DEFAULT_TECHNIQUES,
    AttackerOutput,
    AttackTechnique,
    CrescendoStrategy,
    GoatStrategy,
    RedTeamStrategy,
    Technique,
)
from holodeck.lib.conversation.types import EvaluationResult
from holodeck.scenario.agent_adapter import AgentAdapter
from holodeck.scenario.cache import NotRecorded
from holodeck.scenario.cache import scenario_cache as cache
from holodeck.scenario.config import ModelConfig, ScenarioConfig, configure
from holodeck.scenario.connected_agent import ConnectedAgentAdapter, ConnectedAgentCall
from holodeck.scenario.evaluators import (
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
    if name == "default_config":  # `configure` replaces it
        return ScenarioConfig.default_config
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
