"""The simulated user of a scenario that attacks the agent under test."""

import inspect
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from holodeck.lib.conversation.attack_strategies import (
    AttackTechnique,
    CrescendoStrategy,
    GoatStrategy,
    RedTeamStrategy,
    Technique,
)
from holodeck.lib.conversation.attacker import PROMPTS, RedTeamUser, Task
from holodeck.lib.conversation.script_run import agent, fail, judge, user
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import ScenarioResult, ScriptStep
from holodeck.lib.llm.model import ChatModel
from holodeck.models.cases.messages import Message
from holodeck.scenario.agent_adapter import AgentAdapter, ModelClient, settings_for
from holodeck.scenario.cache import scenario_cache

NAME = "RedTeamAgent"
_ATTACK = frozenset(inspect.signature(RedTeamUser).parameters)
"""The arguments that say how to attack; the others are those of the models."""
TEMPERATURE = 0.7
Check = Callable[[ScenarioState], Awaitable[Any] | Any]
"""A function that asserts something about the conversation so far."""


class RedTeamAgent(RedTeamUser, AgentAdapter):
    """Plays a user who tries to bring the agent to something that it should refuse.

    `RedTeamAgent.crescendo(target=…)` and `RedTeamAgent.goat(target=…)` choose a strategy. Each
    agent attacks in one run.

    Args:
        strategy: What the attacker is told in each turn.
        target: The goal: what the agent under test should refuse.
        total_turns: How many turns the attack has.
        metaprompt_model: The model that plans and rates; the attacking model if not given.
        model: Provider and name of the attacking model; the configured default if not given.
        metaprompt_template: The prompt for the plan, with `{target}`, `{description}` and
            `{total_turns}`; ours if not given.
        attack_plan: The plan; if not given, the model writes one for a strategy that needs it.
        score_responses: Whether each answer is rated, so that the attacker can adapt.
        fast_refusal_detection: Whether an obvious refusal is rated without a model.
        success_score: The score from 0 to 10 that counts as success; None to attack in all turns.
        success_confirm_turns: How many answers in a row must reach it.
        injection_probability: How likely a message is encoded, from 0 to 1.
        techniques: The encodings to draw from.
        max_backtracks: How many refusals are taken back; a third of the turns if not given.
        api_base: The URL of the models' endpoint.
        api_key: Its key; the default is the provider's own variable.
        temperature: Of the attacking model.
        metaprompt_temperature: For the plan; the temperature of the attacker if not given.
        max_tokens: Most tokens of a message of the attacker.
        extra_params: Further settings of the attacking model, as ModelConfig takes them.

    Raises:
        ConfigError: There is no model, or an argument is wrong.
    """

    def __init__(  # noqa: PLR0913 - as documented
        self,
        *,
        strategy: RedTeamStrategy,
        target: str,
        metaprompt_model: str | None = None,
        model: str | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        temperature: float = TEMPERATURE,
        metaprompt_temperature: float | None = None,
        **arguments: Any,
    ) -> None:
        attack = {name: arguments.pop(name) for name in _ATTACK if name in arguments}
        super().__init__(strategy=strategy, target=target, **attack)
        if attack.get("metaprompt_template") is not None and not strategy.needs_metaprompt_plan:
            warnings.warn(
                f"{type(strategy).__name__} needs no plan, so metaprompt_template will be ignored",
                UserWarning,
                stacklevel=2,
            )

        def client(model: str | None, **settings: Any) -> ModelClient:
            endpoint = {"api_base": api_base, "api_key": api_key}
            resolved = settings_for(NAME, model, endpoint | settings)
            return ModelClient(NAME, lambda: resolved)

        self.metaprompt_model = planner = metaprompt_model or model
        of_planner = temperature if metaprompt_temperature is None else metaprompt_temperature
        self._clients: dict[Task, ModelClient] = {
            "attack": client(model, temperature=temperature, **arguments),
            "plan": client(planner, temperature=of_planner),
            "score": client(planner, temperature=0.0),
        }

    @classmethod
    def crescendo(cls, *, target: str, **arguments: Any) -> "RedTeamAgent":
        """Return an attacker that begins harmlessly and asks for more in four phases.

        `arguments` are further arguments of the class.
        """
        return cls(strategy=CrescendoStrategy(), target=target, **arguments)

    @classmethod
    def goat(
        cls,
        *,
        target: str,
        goat_techniques: Sequence[Technique] | None = None,
        encoding_techniques: Sequence[AttackTechnique] | None = None,
        techniques: Sequence[AttackTechnique] | None = None,
        **arguments: Any,
    ) -> "RedTeamAgent":
        """Return an attacker that chooses techniques of persuasion turn by turn, without a plan.

        Args:
            target: The goal: what the agent under test should refuse.
            goat_techniques: The catalogue; `DEFAULT_GOAT_TECHNIQUES` if not given.
            encoding_techniques: The encodings to draw from.
            techniques: The older name of `encoding_techniques`.
            arguments: Further arguments of the class.
        """
        if techniques is not None:
            if encoding_techniques is not None:
                raise TypeError("goat() takes only one of encoding_techniques and techniques")
            warnings.warn(
                "goat(techniques=…) is deprecated; write encoding_techniques=… for encodings, or"
                " goat_techniques=… for the catalogue",
                DeprecationWarning,
                stacklevel=2,
            )
        encodings = techniques if encoding_techniques is None else encoding_techniques
        strategy = GoatStrategy(goat_techniques)
        return cls(strategy=strategy, target=target, techniques=encodings, **arguments)

    def marathon_script(
        self, checks: Sequence[Check] | None = None, final_checks: Sequence[Check] | None = None
    ) -> list[ScriptStep]:
        """Return a script with all turns of the attack, and the judge's verdict at its end.

        After `success_confirm_turns` answers that reach `success_score`, the remaining turns are
        skipped: the checks run, and the judge decides.

        Args:
            checks: Functions to call after each answer, which assert something.
            final_checks: Functions to call once before the verdict.
        """
        each, last = list(checks or ()), list(final_checks or ())

        async def end_early(state: ScenarioState) -> ScenarioResult | None:
            if not self.check_early_exit():
                return None
            for check in (*each, *last):
                returned = check(state)
                if inspect.isawaitable(returned):
                    await returned
            return await self._verdict(state)

        turn: list[Any] = [user(), agent()]
        if self.success_score is not None:
            turn.append(end_early)
        steps = [step for _ in range(self.total_turns) for step in (*turn, *each)]
        return [*steps, *last, judge()]

    async def _verdict(self, state: ScenarioState) -> ScenarioResult | None:
        """Return what the judge decides of an attack that reached its goal, as far as it knows."""
        verdict = await judge()(state)
        if verdict is not None:
            return verdict
        reason = (
            f"Early exit: the attack reached its goal (score >= {self.success_score} for"
            f" {self.success_confirm_turns} consecutive turns), and the judge gave no verdict"
        )
        return await fail(reason)(state)

    def model_for_task(self, task: Task) -> ChatModel:
        return self._clients[task].get()

    @asynccontextmanager
    async def keep_open(self) -> AsyncIterator[None]:
        """Keep the connections open during a run."""
        async with AsyncExitStack() as stack:
            for client in self._clients.values():
                await stack.enter_async_context(client.keep_open())
            yield

    @scenario_cache()
    async def _ask(self, task: Task, messages: Sequence[Message]) -> str:
        return await super()._ask(task, messages)

    def cache_facts(self) -> dict[str, object]:
        """Return what the answers of the models depend on besides their prompts."""
        models = {task: client.facts for task, client in self._clients.items()}
        return {"models": models, "prompts": PROMPTS}
