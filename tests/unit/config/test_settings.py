"""Settings of a run: who wins, and what each value remembers."""

import click
import pytest
from click.testing import CliRunner

from holodeck.config.defaults import DEFAULT_EXECUTION_CONFIG
from holodeck.config.environment import Environment
from holodeck.config.flags import cli_config, cli_options
from holodeck.config.loader import ConfigLoader, load_agent_with_config
from holodeck.config.settings import resolve_settings, unknown_variable_warnings
from holodeck.errors import ConfigError
from holodeck.models.config import ExecutionConfig, Setting, setting_fields


def variables(**values):
    return Environment([("environment", values)])


def test_every_field_is_declared_as_one_setting():
    declared = {
        name: [one for one in field.metadata if isinstance(one, Setting)]
        for name, field in ExecutionConfig.model_fields.items()
    }

    assert all(len(found) == 1 for found in declared.values()), declared
    assert list(setting_fields()) == list(declared)


def test_no_flag_is_declared_twice():
    flags = [flag for one in setting_fields().values() for flag in one.flags]

    assert len(flags) == len(set(flags))


def test_every_default_is_one_that_its_own_field_accepts():
    assert ExecutionConfig(**DEFAULT_EXECUTION_CONFIG).model_dump() == DEFAULT_EXECUTION_CONFIG


def test_each_level_wins_over_those_below(folder, monkeypatch):
    seen = []

    def look(cli=None):
        config = load_agent_with_config("agent.yaml", cli)[1]
        seen.append((config.llm_timeout, config.source_of("llm_timeout")))

    folder.agent()
    look()
    monkeypatch.setenv("HOLODECK_LLM_TIMEOUT", "1")
    look()
    user = folder.user(".holodeck/config.yaml", "execution: {llm_timeout: 2}")
    look()
    folder.write("config.yaml", "execution:\n  llm_timeout: 3\n")
    look()
    folder.agent("execution:\n  llm_timeout: 4\n")
    look()
    look(cli_config({"llm_timeout": 5.0}))

    assert seen == [
        (60, "default"),
        (1, "HOLODECK_LLM_TIMEOUT"),
        (2, f"{user}:1:26"),
        (3, "config.yaml:2:16"),
        (4, "agent.yaml:5:16"),
        (5, "--llm-timeout"),
    ]


OTHERS = {"min_pass_rate": (0.5, 0.25), "events": ("a.jsonl", "b.jsonl")}
OTHERS |= {"judge_trust": ("require", "off"), "report_detail": ("all", "failures")}
OTHERS |= {"cache_dir": ("a", "b")}
OTHERS |= {"recordings": ("a", "b"), "recording": ("replay", "all")}
OTHERS["allowed_hosts"] = (["a", "[::1]:80"], ["b.example"])
OTHERS |= {"run_on": ("ray", "local"), "ray_variables": (["a", "b"], ["c"])}
"""Two values for each setting that is no number above 1."""


@pytest.mark.parametrize("field", ExecutionConfig.model_fields)
def test_every_setting_is_reached_by_its_variable_and_by_yaml(folder, monkeypatch, field):
    value = {bool: True, float: 7.0, int: 7}.get(type(DEFAULT_EXECUTION_CONFIG[field]), 7.0)
    value, other = OTHERS.get(field, (value, False if value is True else 9))
    written = ", ".join(value) if isinstance(value, list) else str(value)
    monkeypatch.setenv(setting_fields()[field].variable, written)
    folder.agent()

    by_variable = load_agent_with_config("agent.yaml")[1]
    folder.agent(f"execution: {{{field}: {str(other).lower()}}}\n")
    by_yaml = load_agent_with_config("agent.yaml")[1]

    assert getattr(by_variable, field) == value
    assert getattr(by_yaml, field) == other


def test_levels_are_weighed_per_field(folder, monkeypatch):
    monkeypatch.setenv("HOLODECK_FILE_TIMEOUT", "8")
    folder.write("config.yaml", "execution: {max_retries: 1, llm_timeout: 2}\n")
    folder.agent("execution: {llm_timeout: 3, max_retries: null}\n")

    config = load_agent_with_config("agent.yaml")[1]

    assert (config.llm_timeout, config.max_retries, config.file_timeout) == (3, 1, 8)


def test_a_variable_from_an_env_file_names_the_file(folder):
    folder.write(".env", "HOLODECK_MAX_RETRIES=0\n")
    folder.agent()

    config = load_agent_with_config("agent.yaml")[1]

    assert config.max_retries == 0
    assert config.source_of("max_retries").startswith("HOLODECK_MAX_RETRIES in ")
    assert config.source_of("max_retries").endswith(".env")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "HOLODECK_LLM_TIMEOUT",
            "soon",
            "found 'soon'; expected a number (Limit of one agent or judge call",
        ),
        ("HOLODECK_LLM_TIMEOUT", "-1", "found '-1'; expected more than 0"),
        ("HOLODECK_MAX_RETRIES", "many", "found 'many'; expected a whole number"),
        ("HOLODECK_PARALLEL_TEST_CASES", "0", "found '0'; expected at least 1"),
        ("HOLODECK_QUIET", "maybe", "found 'maybe'; expected true or false"),
    ],
)
def test_a_bad_variable_is_an_error_that_names_it_even_where_it_is_overruled(
    folder, monkeypatch, name, value, message
):
    monkeypatch.setenv(name, value)
    folder.agent("execution: {llm_timeout: 4}\n")

    with pytest.raises(ConfigError) as caught:
        load_agent_with_config("agent.yaml")

    assert str(caught.value).startswith(f"{name}: {message}")


def test_an_empty_variable_is_not_set():
    assert resolve_settings([], variables(HOLODECK_MAX_RETRIES="")).max_retries == 5


@pytest.mark.parametrize(
    ("value", "meant"), [("1", True), ("on", True), ("false", False), ("no", False)]
)
def test_switches_in_variables_read_the_usual_words(value, meant):
    assert resolve_settings([], variables(HOLODECK_QUIET=value)).quiet is meant


def test_unknown_variables_of_ours_are_told_with_the_nearest_one():
    env = variables(
        HOLODECK_PARALEL_TEST_CASES="1", HOLODECK_ZZZ="1", HOLODECK_CACHE_DIR="/x", A=""
    )

    assert unknown_variable_warnings(env) == [
        (
            "unknown variable HOLODECK_PARALEL_TEST_CASES;"
            " did you mean HOLODECK_PARALLEL_TEST_CASES?"
        ),
        "unknown variable HOLODECK_ZZZ",
    ]


def test_resolve_execution_config_takes_the_levels_one_by_one(folder):
    config = ConfigLoader().resolve_execution_config(
        cli_config=None,
        yaml_config=ExecutionConfig(llm_timeout=1),
        project_config=ExecutionConfig(llm_timeout=2, max_retries=2),
        user_config=ExecutionConfig(llm_timeout=3, max_retries=3, file_timeout=3),
        defaults={"retry_delay": 9},
    )

    assert (config.llm_timeout, config.max_retries, config.file_timeout) == (1, 2, 3)
    assert config.retry_delay == 9
    assert config.source_of("llm_timeout") == "agent.yaml"
    assert config.source_of("max_retries") == "project config"
    assert config.source_of("quiet") == "default"


def run_flags(*arguments):
    given = []

    @click.command()
    @cli_options()
    def command(**values):
        given.append(cli_config(values))

    return CliRunner().invoke(command, arguments), given


def test_every_flag_reaches_its_setting():
    result, (config,) = run_flags(
        "--timeout",
        "5",
        "--attempt-timeout",
        "2",
        "--max-retries",
        "1",
        "--retries",
        "4",
        "-j",
        "3",
        "-v",
        "--no-quiet",
    )

    assert result.exit_code == 0
    assert config.model_dump(exclude_none=True) == {
        "llm_timeout": 5.0,
        "attempt_timeout": 2.0,
        "max_retries": 1,
        "retries": 4,
        "parallel_test_cases": 3,
        "verbose": True,
        "quiet": False,
    }
    assert config.source_of("parallel_test_cases") == "--parallel-test-cases"
    assert config.source_of("quiet") == "--no-quiet"


def test_flags_that_are_not_given_set_nothing():
    assert run_flags()[1][0].model_dump(exclude_none=True) == {}


def test_a_flag_can_turn_off_what_agent_yaml_turns_on(folder):
    folder.agent("execution: {quiet: true}\n")
    (flags,) = run_flags("--no-quiet")[1]

    assert load_agent_with_config("agent.yaml", flags)[1].quiet is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--timeout", "0"), "'--llm-timeout': found '0'; expected more than 0"),
        (("--timeout", "nan"), "'--llm-timeout': found 'nan'; expected a finite number"),
        (("-j", "1.5"), "'--parallel-test-cases' / '-j': found '1.5'; expected a whole number"),
        (("--max-retries", "x"), "'--max-retries': found 'x'; expected a whole number"),
    ],
)
def test_a_bad_flag_is_a_usage_error(arguments, message):
    result, given = run_flags(*arguments)

    assert result.exit_code == 2
    assert message in result.output
    assert not given


def test_help_says_what_the_settings_say():
    output = " ".join(run_flags("--help")[0].output.split())

    for one in setting_fields().values():
        if one.flags:
            assert one.setting.help.removesuffix(".") in output


def test_options_can_be_left_out():
    @click.command()
    @cli_options(without=("verbose",))
    def command(**values):
        click.echo(sorted(values))

    assert "verbose" not in CliRunner().invoke(command).output
