"""The variables that make the exporter of an agent in a process send to holodeck."""

from holodeck.lib.test_runner.turns.traced_turns import with_variables
from holodeck.models.agent import Agent

VARIABLES = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY": "200"}


def test_variables_of_the_backend_take_precedence():
    own = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector"}
    backend = {"type": "process", "target": "shop:answer", "env": own}
    agent = Agent.model_validate({"name": "a", "backend": backend})

    env = with_variables(agent, VARIABLES).backend.env

    assert {name: value.get_secret_value() for name, value in env.items()} == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }


def test_an_agent_in_this_process_stays_as_it_is():
    agent = Agent.model_validate({"name": "a", "backend": "shop:answer"})

    assert with_variables(agent, VARIABLES) is agent
