"""Providers in an agent.yaml: the agent and its judges, each from the variables of its provider."""

import json

import pytest

from fakes import FakeOpenAI, case
from support.checks import assert_plain, results_in

VERDICT = json.dumps({"c1": {"reasoning": "it greets", "status": "passed"}})


def test_agents_and_judges_of_table_providers_are_called_with_their_keys(agent_dir):
    agent_dir.server.when("Criteria", VERDICT).otherwise("OK")
    agent_dir.write_agent(
        model={"provider": "groq", "name": "llama"},
        evaluations={"model": {"provider": "mistral", "name": "large"}},
        test_cases=[case("greets", "hello", contains="OK") | {"criteria": ["It greets"]}],
    )

    env = {
        "GROQ_API_BASE": agent_dir.server.url,
        "GROQ_API_KEY": "groq-key",
        "MISTRAL_API_BASE": agent_dir.server.url,
        "MISTRAL_API_KEY": "mistral-key",
    }
    ran = agent_dir.run("test", "-o", "report.json", env=env)

    assert_plain(ran)
    assert ran.code == 0, ran.stderr
    assert results_in(agent_dir.path / "report.json")["greets"]["passed"]
    sent = {one.body["model"]: one.headers["authorization"] for one in agent_dir.server.requests}
    assert sent == {"llama": "Bearer groq-key", "large": "Bearer mistral-key"}


def test_a_model_that_only_litellm_calls_cannot_be_the_built_in_agent(agent_dir):
    agent_dir.write_agent(model={"provider": "bedrock", "name": "anthropic.claude-3"})

    ran = agent_dir.run("validate")

    assert ran.code == 2
    assert "'bedrock' through LiteLLM" in ran.stderr


PROVIDERS = ["openai", "azure_openai", "anthropic", "ollama"]


def write_agent_of(agent_dir, provider, **execution):
    model = {"provider": provider, "name": "m", "endpoint": agent_dir.server.root}
    key = {} if provider == "ollama" else {"api_key": "secret-key"}
    cases = [case("greets", "hello", contains="OK")]
    agent_dir.write_agent(model=model | key, test_cases=cases, execution=execution)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_provider_can_lead_the_prompt_to_another_host(agent_dir, provider):
    with FakeOpenAI() as elsewhere:
        agent_dir.server.otherwise(status=307, headers={"location": f"{elsewhere.root}/other"})
        write_agent_of(agent_dir, provider)

        ran = agent_dir.run("test")

        assert elsewhere.requests == []
    assert ran.code == 3
    assert "HTTP 307: the endpoint redirects; write the URL that it redirects to" in ran.stdout
    assert len(agent_dir.server.requests) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_response_that_is_not_valid_http_is_retried(agent_dir, provider):
    agent_dir.server.otherwise("OK", headers={"content-length": "-5"})
    write_agent_of(agent_dir, provider, max_retries=1, retry_delay=0)

    ran = agent_dir.run("test")

    assert ran.code == 3
    assert "(after 2 attempts)" in ran.stdout
    assert len(agent_dir.server.requests) == 2
