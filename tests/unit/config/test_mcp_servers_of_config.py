"""`mcp_servers` of config.yaml: tools for the built-in agents, which never stop one."""

import pytest
import yaml

import support.mcp_faults as faults
from fakes import run_cli
from holodeck.config.environment import Environment
from holodeck.config.loader import ConfigLoader

AGENT = {
    "name": "shop",
    "model": {"provider": "openai", "name": "m", "api_key": "k"},
    "instructions": {"inline": "Help."},
    "test_cases": [{"input": "hi"}],
}


def server(name, **fields):
    return {"type": "mcp", "name": name, "command": "sh", **fields}


def tools(folder, project=(), user=(), **agent):
    """Load an agent beside config.yaml files with these servers, and return its tools."""
    home = folder / "home"
    (home / ".holodeck").mkdir(parents=True)
    (folder / "agent.yaml").write_text(yaml.safe_dump(AGENT | agent))
    (folder / "config.yaml").write_text(yaml.safe_dump({"mcp_servers": list(project)}))
    (home / ".holodeck" / "config.yaml").write_text(yaml.safe_dump({"mcp_servers": list(user)}))
    loader = ConfigLoader(Environment([("environment", {"HOME": str(home)})]))
    return loader.load_agent_yaml(folder / "agent.yaml").tools or []


def test_servers_are_added_to_the_tools_and_the_nearest_of_a_name_wins(tmp_path):
    found = tools(
        tmp_path,
        project=[server("b", args=["project"]), server("c", args=["project"])],
        user=[server("c", args=["user"]), {"name": "d", "command": "./d"}],
        tools=[server("b", args=["agent"])],
    )

    assert [(one.name, one.args, one.is_shared) for one in found] == [
        ("b", ["agent"], False),
        ("c", ["project"], True),
        ("d", None, True),
    ]
    assert found[2].base_dir(tmp_path) == tmp_path / "home" / ".holodeck"


@pytest.mark.parametrize("backend", ["bot:answer", {"type": "http", "url": "http://127.0.0.1:1"}])
def test_an_agent_of_ones_own_gets_none(tmp_path, backend):
    agent = {"model": None, "instructions": None, "backend": backend}

    assert tools(tmp_path, project=[server("a")], **agent) == []


def test_a_server_that_cannot_be_started_is_one_warning_and_the_cases_run(tmp_path, fake_openai):
    model = {"provider": "openai", "name": "m", "endpoint": fake_openai.url}
    case = {"input": "hi", "expected_tools": [{"name": "pid"}]}
    agent = AGENT | {"backend": "chat", "model": model, "test_cases": [case]}
    fake_openai.reply(tool_calls=[("pid", {})]).reply("done")
    broken = {"name": "broken", "command": "no-such-program"}
    good = {"name": "good", "command": faults.COMMAND[0], "args": faults.COMMAND[1:]}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"mcp_servers": [broken, good]}))

    ran = run_cli("test", "agent.yaml", cwd=tmp_path)

    assert (ran.code, ran.stdout.count("PASS") > 0) == (0, True), ran
    [warning] = [line for line in ran.stderr.splitlines() if "mcp_servers" in line]
    assert "the MCP server 'broken' failed" in warning
    assert "no-such-program" in warning
    assert warning.endswith("its tools are missing")


def test_a_forbidden_tool_that_no_server_offers_is_an_error_also_if_none_could_be_started(
    tmp_path, fake_openai
):
    model = {"provider": "openai", "name": "m", "endpoint": fake_openai.url}
    checks = [{"metric": "contains", "value": "done"}]
    case = {"input": "hi", "forbidden_tools": ["delete_ordr"], "evaluations": checks}
    agent = AGENT | {"backend": "chat", "model": model, "test_cases": [case]}
    fake_openai.reply("done")
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    broken = {"name": "broken", "command": "no-such-program"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"mcp_servers": [broken]}))

    ran = run_cli("test", "agent.yaml", cwd=tmp_path)

    assert ran.code == 2
    assert "delete_ordr" in ran.stderr
