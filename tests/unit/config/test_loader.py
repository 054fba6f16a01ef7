"""Loading agent.yaml and config.yaml."""

import logging
import textwrap

import pytest

from holodeck import errors
from holodeck.config.environment import Environment
from holodeck.config.loader import ConfigLoader, load_agent_with_config
from holodeck.errors import ConfigError
from holodeck.models.config import GlobalConfig
from holodeck.models.llm import ProviderEnum

EVERYTHING = """\
    name: everything
    description: All keys.
    author: Someone
    model:
      provider: azure_openai
      name: gpt-4o
      temperature: 0
      max_tokens: 50
      top_p: 0.5
      endpoint: https://example.openai.azure.com
      api_key: not-a-real-key
      api_version: "2024-10-21"
    instructions:
      file: prompts/system.md
    response_format:
      type: object
      properties: {answer: {type: string}}
    tools:
      - type: function
        name: search
        file: tools.py
        function: search
        description: Looks things up.
        parameters: {query: {type: string}}
        timeout: 5
    evaluations:
      metrics:
        - type: standard
          metric: bleu
          threshold: 0
          enabled: false
          fail_on_error: true
          retry_on_failure: 2
          timeout_ms: 100
        - {metric: rouge, variant: rouge1, value: x}
        - {metric: f1_score}
        - {metric: meteor}
    test_cases:
      - name: first
        input: Find it.
        expected_tools:
          - search
          - name: search
            args: {query: {regex: "it.*"}, limit: {number: {value: 3, absolute_tolerance: 1}}}
            count: 1
            match: substring
        forbidden_tools: [delete]
        tool_order: true
        ground_truth: Found.
        files: [{path: a.txt, type: text, description: A.}]
        retrieval_context: [one, two]
        evaluations:
          - {metric: exact_match, value: Found., ignore_case: true, strip: false}
          - {metric: contains, values: [a, b], match: any, normalize_whitespace: true}
          - {metric: not_contains, value: no, ignore_punctuation: true}
          - {metric: regex, pattern: "F.*", fullmatch: true, time_limit_ms: 50}
          - {metric: json_schema, schema: {type: object}, allow_fenced: true}
          - {metric: numeric, value: 3, pick: last, accept_percent: true}
          - {metric: latency, max_ms: 1000}
          - {metric: "graders:check", name: mine}
      - input: Nothing to call.
        expected_tools: []
    execution:
      llm_timeout: 10
      attempt_timeout: 4
      max_retries: 0
      retry_delay: 0
      file_timeout: 3
      parallel_test_cases: 4
      verbose: true
      quiet: false
      offline: true
    observability:
      enabled: true
      service_name: svc
      traces: {enabled: true, sample_rate: 0.5, capture_content: true, redaction_patterns: [a]}
      exporters:
        console: {pretty_print: false}
        otlp: {endpoint: "http://localhost:4318", headers: {Authorization: x}, compression: gzip}
      resource_attributes: {team: a}
"""


def test_every_key_of_the_format_loads(folder):
    folder.write("agent.yaml", EVERYTHING)

    agent = ConfigLoader().load_agent_yaml("agent.yaml")

    assert agent.model.temperature == 0
    assert agent.test_cases[0].expected_tools[1].args["query"] == {"regex": "it.*"}
    assert [m.metric for m in agent.test_cases[0].evaluations][-1] == "graders:check"
    assert agent.test_cases[1].expected_tools == []
    assert agent.execution.parallel_test_cases == 4
    assert agent.base_dir == folder.path


def test_relative_paths_start_at_the_folder_of_the_file(folder):
    folder.agent(name="deep/er/agent.yaml")

    agent = ConfigLoader().load_agent_yaml("deep/er/agent.yaml")

    assert agent.base_dir == folder.path / "deep" / "er"


def test_a_folder_means_the_agent_yaml_in_it(folder):
    folder.agent(name="one/agent.yaml")

    assert ConfigLoader().load_agent_yaml("one").name == "greeter"


def test_a_missing_file_names_the_nearest_one(folder):
    folder.agent(name="agnet.yaml")

    with pytest.raises(errors.FileNotFoundError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")

    assert str(caught.value) == "agent.yaml: file not found; did you mean 'agnet.yaml'?"


def test_a_missing_file_lists_what_there_is(folder):
    folder.agent(name="support-bot.yaml")

    with pytest.raises(errors.FileNotFoundError, match=r"found there: support-bot\.yaml"):
        ConfigLoader().load_agent_yaml("agent.yaml")


def test_a_missing_file_in_an_empty_folder_says_to_write_one(folder):
    with pytest.raises(errors.FileNotFoundError, match="write one with 'holodeck init', or name"):
        ConfigLoader().load_agent_yaml("nowhere/agent.yaml")


@pytest.mark.parametrize("name", [".holodeck/config.yaml", ".config/holodeck/config.yaml"])
def test_the_users_configuration_fills_the_model(folder, name):
    folder.user(name, "providers: {openai: {endpoint: http://user, temperature: 1}}\n")
    folder.write(
        "agent.yaml",
        """\
        name: x
        model: {provider: openai, name: gpt, temperature: 0}
        instructions: {inline: hi}
        """,
    )

    model = ConfigLoader().load_agent_yaml("agent.yaml").model

    assert (model.endpoint, model.temperature) == ("http://user", 0)


def test_the_project_wins_over_the_user_key_by_key(folder):
    folder.user(
        ".holodeck/config.yml",
        "providers: {openai: {endpoint: http://user, api_key: user-key, name: user-model}}",
    )
    folder.write("config.yaml", "providers: {openai: {endpoint: http://project}}\n")
    folder.write(
        "agent.yaml",
        "name: x\nmodel: {provider: openai}\ninstructions: {inline: hi}\n",
    )

    model = ConfigLoader().load_agent_yaml("agent.yaml").model

    assert (model.endpoint, model.name) == ("http://project", "user-model")
    assert model.api_key.get_secret_value() == "user-key"


def test_a_provider_may_have_a_name_of_ones_own():
    shared = GlobalConfig.model_validate(
        {"providers": {"work": {"provider": "openai", "endpoint": "http://work"}}}
    )

    merged = ConfigLoader().merge_configs({"model": {"provider": "openai", "name": "m"}}, shared)

    assert merged["model"] == {"provider": "openai", "name": "m", "endpoint": "http://work"}


def test_an_agent_without_a_model_is_merged_unchanged():
    shared = GlobalConfig.model_validate({"providers": {"openai": {"name": "m"}}})

    assert ConfigLoader().merge_configs({"name": "x"}, shared) == {"name": "x"}


def test_yml_is_preferred_over_yaml_with_a_warning(folder, caplog):
    folder.write("config.yml", "execution: {llm_timeout: 1}\n")
    folder.write("config.yaml", "execution: {llm_timeout: 2}\n")

    with caplog.at_level(logging.WARNING):
        config = ConfigLoader().load_project_config(folder.path)

    assert config.execution.llm_timeout == 1
    assert "ignoring config.yaml in the same folder" in caplog.text


def test_no_configuration_files_are_none(folder):
    loader = ConfigLoader()

    assert loader.load_project_config(folder.path) is None
    assert loader.load_global_config() is None


def test_a_configuration_is_read_once_per_loader(folder):
    loader = ConfigLoader()
    path = folder.write("config.yaml", "execution: {llm_timeout: 1}\n")
    first = loader.load_project_config(folder.path)
    path.write_text("nonsense: true\n")

    assert loader.load_project_config(folder.path) is first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exection: {}", "config.yaml:1:1: exection: unknown key; did you mean 'execution'?"),
        ("vectorstores: {a: 1}", "config.yaml:1:19: vectorstores.a: found 1; expected a mapping"),
        (
            "providers: {opnai: {name: x}}",
            "config.yaml:1:1: 'providers' contains the unknown provider 'opnai'",
        ),
        (
            "execution: {llm_timeout: soon}",
            "config.yaml:1:26: execution.llm_timeout: found 'soon'; expected a number",
        ),
    ],
)
def test_a_wrong_project_configuration_is_an_error_with_its_place(folder, text, message):
    folder.agent()
    folder.write("config.yaml", text + "\n")

    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("provider", "variables", "endpoint", "key"),
    [
        ("openai", {"OPENAI_API_KEY": "k"}, None, "k"),
        ("openai", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://o"}, "http://o", "k"),
        (
            "azure_openai",
            {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "http://a"},
            "http://a",
            "k",
        ),
        (
            "anthropic",
            {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://c"},
            "http://c",
            "k",
        ),
        ("ollama", {"OLLAMA_HOST": "http://h:1"}, "http://h:1", None),
        ("ollama", {"OLLAMA_HOST": "0.0.0.0"}, "http://127.0.0.1:11434", None),
        ("ollama", {"OLLAMA_HOST": "box:9"}, "http://box:9", None),
        ("openai", {"OPENAI_API_KEY": " ", "ANTHROPIC_API_KEY": "k"}, None, None),
    ],
)
def test_a_providers_own_variables_fill_the_model(folder, provider, variables, endpoint, key):
    folder.write(
        "agent.yaml",
        f"name: x\nmodel: {{provider: {provider}, name: m}}\ninstructions: {{inline: hi}}\n",
    )
    env = Environment([("environment", {"HOME": str(folder.home), **variables})])

    model = ConfigLoader(env).load_agent_yaml("agent.yaml").model

    assert model.endpoint == endpoint
    assert (model.api_key and model.api_key.get_secret_value()) == key


def test_what_agent_yaml_says_wins_over_the_providers_variables(folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "from-variable")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://variable")
    folder.write(
        "agent.yaml",
        """\
        name: x
        model: {provider: openai, name: m, api_key: from-file, endpoint: http://file}
        instructions: {inline: hi}
        """,
    )

    model = ConfigLoader().load_agent_yaml("agent.yaml").model

    assert model.api_key.get_secret_value() == "from-file"
    assert model.endpoint == "http://file"


def test_a_local_model_needs_no_name_and_takes_no_variables(folder, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://variable")
    folder.agent()

    model = ConfigLoader().load_agent_yaml("agent.yaml").model

    assert model.provider is ProviderEnum.LOCAL
    assert model.name == "smollm2-135m-instruct"
    assert model.endpoint is None


def test_load_agent_with_config_gives_agent_settings_and_loader(folder):
    folder.agent("execution: {llm_timeout: 7}\n")

    agent, config, loader = load_agent_with_config("agent.yaml")

    assert agent.name == "greeter"
    assert config.llm_timeout == 7
    assert isinstance(loader, ConfigLoader)


def test_a_misspelt_variable_of_ours_is_warned_about(folder, monkeypatch, caplog):
    folder.agent()
    monkeypatch.setenv("HOLODECK_LLM_TIMOUT", "5")

    with caplog.at_level(logging.WARNING):
        load_agent_with_config("agent.yaml")

    assert "unknown variable HOLODECK_LLM_TIMOUT" in caplog.text
    assert "did you mean HOLODECK_LLM_TIMEOUT?" in caplog.text


def test_parse_yaml_gives_plain_values(folder, monkeypatch):
    monkeypatch.setenv("V", "1")
    path = folder.write("x.yaml", "a: {b: '${V}'}\n")

    assert ConfigLoader().parse_yaml(path) == {"a": {"b": "1"}}


def test_resolve_file_path_is_absolute_or_an_error(folder):
    path = folder.write("data/a.txt", "x")

    assert ConfigLoader().resolve_file_path("data/a.txt", folder.path) == path
    with pytest.raises(errors.FileNotFoundError, match=r"did you mean 'a\.txt'"):
        ConfigLoader().resolve_file_path("data/b.txt", folder.path)


def test_an_agent_knows_the_places_of_its_values(folder):
    folder.agent(textwrap.dedent("test_cases:\n  - input: a\n  - input: b\n"))

    agent = ConfigLoader().load_agent_yaml("agent.yaml")

    assert agent.location("test_cases", 1, "input") == "agent.yaml:6:12"
