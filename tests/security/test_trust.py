"""What a configuration may name: modules, commands, hosts and variables."""

import json
import re
import subprocess
import sys

import pytest

from holodeck.config.addresses import hosts_in
from holodeck.models.agent import Agent
from holodeck.models.base import NetworkUse, is_used, models_in
from support.cli import clean_environment, home_for, run_cli, start_in_pty

CASE = {
    "name": "c",
    "input": "touch RAN",
    "evaluations": [{"metric": "contains", "value": "x"}],
}


REFUSED = [
    "os:system", "builtins:exec", "subprocess:getoutput", "__main__:main",
    "importlib.util:find_spec", "test.support.script_helper:assert_python_ok",
    "holodeck.lib.user_code.registry:load_attribute", "holodeck:run",
]  # fmt: skip
PLACES = {
    "backend": {"backend": "os:system"},
    "python": {"backend": {"type": "python", "target": "os:system"}},
    "process": {"backend": {"type": "process", "target": "os:system"}},
    "prepare": {"backend": {"type": "http", "url": "http://127.0.0.1:9", "prepare": "os:system"}},
    "parse": {"backend": {"type": "http", "url": "http://127.0.0.1:9", "parse": "os:system"}},
    "metric": {"test_cases": [CASE | {"evaluations": [{"metric": "os:system"}]}]},
    "call": {"test_cases": [{"script": [{"user": "touch RAN"}, "agent", {"call": "os:system"}]}]},
}


@pytest.mark.parametrize("target", REFUSED)
def test_modules_of_python_and_of_holodeck_are_no_agents(write_bot, cli, target):
    ran = cli.run("validate", cwd=write_bot(backend=target, test_cases=[CASE]).parent)

    assert ran.code == 2
    assert f"backend: {target.partition(':')[0]!r} is a module of" in ran.stdout


@pytest.mark.parametrize("place", PLACES)
def test_a_module_of_python_is_not_run_wherever_it_is_named(write_bot, cli, place):
    folder = write_bot(**({"test_cases": [CASE]} | PLACES[place])).parent

    for command in ("validate", "test"):
        ran = cli.run(command, cwd=folder)

        assert ran.code == 2, ran.stdout
        assert "'os' is a module of Python itself" in ran.stdout + ran.stderr
    assert not (folder / "RAN").exists()


IMPORTING = "import os\nimport subprocess\nfrom os import system\n"


@pytest.mark.parametrize(
    "target",
    ["click.utils:os.system", "bot:os.system", "bot:subprocess.getoutput", "bot:system"],
)
@pytest.mark.parametrize("place", ["backend", "metric", "call"])
def test_what_python_defines_is_not_run_through_another_module_either(bot_dir, target, place):
    bot_dir.write("bot.py", f"{IMPORTING}def answer(message): return message")
    keys = json.loads(json.dumps(PLACES[place]).replace("os:system", target))
    bot_dir.write_agent(**{
        "model": None, "instructions": None, "backend": "bot:answer", "test_cases": [CASE]
    } | keys)  # fmt: skip

    ran = bot_dir.run("test")

    assert not (bot_dir.path / "RAN").exists()
    assert ran.code != 0
    assert "is a module of Python itself" in ran.stdout + ran.stderr


def test_a_function_that_a_decorator_of_python_made_is_the_users(bot_dir, write_bot):
    decorated = "import functools\n@functools.cache\ndef answer(message): return message"
    bot_dir.write("bot.py", decorated)
    write_bot()

    assert bot_dir.run("test").code == 0


def test_a_file_beside_the_agent_may_have_the_name_of_a_module_of_python(bot_dir, write_bot):
    bot_dir.write("calendar.py", "def answer(message): return message")
    write_bot(backend="calendar:answer")

    assert bot_dir.run("test").code == 0


DECLARATIONS = {
    "pyproject.toml": '[project]\nname = "x"\ndependencies = ["{}>=1"]\n',
    "requirements.txt": "# ours\n{}==8.1.0  # pinned\n",
    "requirements-dev.txt": "{}\n",
    "setup.cfg": "[options]\ninstall_requires =\n  {}>=8\n",
}


@pytest.mark.parametrize("file", DECLARATIONS)
def test_an_installed_package_must_be_one_that_the_project_declares(bot_dir, write_bot, cli, file):
    write_bot(backend="click:style", test_cases=[CASE])
    project = bot_dir.path.parent / file

    codes = [cli.run("validate", cwd=bot_dir.path).code]
    project.write_text(DECLARATIONS[file].format("httpx2"))
    undeclared = cli.run("validate", cwd=bot_dir.path)
    ran = cli.run("test", cwd=bot_dir.path)
    project.write_text(DECLARATIONS[file].format("Click"))
    codes += [undeclared.code, ran.code, cli.run("validate", cwd=bot_dir.path).code]

    assert codes == [0, 2, 2, 0]
    assert "does not declare the package of 'click'; add 'click'" in undeclared.stdout


def test_a_package_may_have_another_name_than_its_module(bot_dir, write_bot, cli):
    bot_dir.write("pyproject.toml", DECLARATIONS["pyproject.toml"].format("PyYAML"))
    write_bot(backend="yaml:safe_load", test_cases=[CASE])

    assert cli.run("validate", cwd=bot_dir.path).code == 0


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", "[tool.ruff]\nline-length = 100\n"),
        ("pyproject.toml", '[project]\nname = "x"\ndynamic = ["dependencies"]\n'),
        ("pyproject.toml", "[project\n"),
        ("setup.py", "raise SystemExit('never run')\n"),
    ],
    ids=["no dependencies", "dynamic", "broken", "code"],
)
def test_a_project_that_declares_nothing_readable_forbids_no_installed_package(
    bot_dir, write_bot, cli, file, text
):
    bot_dir.write(file, text)
    write_bot(backend="click:style", test_cases=[CASE])

    assert cli.run("validate", cwd=bot_dir.path).code == 0


def test_python_m_holodeck_imports_no_module_of_the_working_folder(bot_dir, write_bot):
    for name in ("yaml", "click", "pydantic", "platformdirs"):
        bot_dir.write(f"{name}.py", "open('RAN', 'w')\nraise SystemExit(9)\n")
    write_bot()

    ran = subprocess.run(
        [sys.executable, "-m", "holodeck", "validate"],
        cwd=bot_dir.path,
        env=clean_environment(home_for(bot_dir.path)),
        capture_output=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert not (bot_dir.path / "RAN").exists()


def elsewhere(server):
    """The server at an address that is this machine's, but does not look like it."""
    return server.url.replace("127.0.0.1", "0.0.0.0")


def model(**keys):
    return {"provider": "openai", "name": "fake"} | keys


KEY = {"OPENAI_API_KEY": "key-of-the-user"}


@pytest.fixture
def foreign_dir(agent_dir):
    """A folder whose `.env` leads requests to another host, with the user's key."""
    agent_dir.write(".env", f"OPENAI_BASE_URL={elsewhere(agent_dir.server)}\nHOLODECK_TRUST=1\n")
    agent_dir.write_agent(model=model())
    return agent_dir


def test_no_key_is_sent_where_a_dotenv_file_of_the_repository_leads(foreign_dir):
    ran = foreign_dir.run("test", env=KEY)

    assert ran.code == 2
    assert foreign_dir.server.requests == []
    assert ".env leads requests to 0.0.0.0" in ran.stderr
    assert "--trust" in ran.stderr


@pytest.mark.parametrize("command", ["score", "judge"])
def test_grading_again_sends_no_key_there_either(foreign_dir, command):
    foreign_dir.write_agent(
        model=model(), test_cases=[{"name": "c", "input": "hi", "criteria": ["It is polite."]}]
    )
    assert foreign_dir.run("test", "--trust", env=KEY).code in {0, 1, 4}
    before = len(foreign_dir.server.requests)

    args = ("judge", "check", "--quick") if command == "judge" else ("score",)
    ran = foreign_dir.run(*args, env=KEY)

    assert ran.code == 2
    assert len(foreign_dir.server.requests) == before
    assert "--trust" in ran.stderr


@pytest.mark.parametrize(
    ("args", "env"), [(["--trust"], {}), ([], {"HOLODECK_TRUST": "1"})], ids=["flag", "variable"]
)
def test_trust_consents_without_a_terminal_and_names_the_host_once(foreign_dir, args, env):
    ran = foreign_dir.run("test", *args, env=KEY | env)

    assert ran.code == 0, ran.stderr
    assert ran.stderr.count("Requests go to 0.0.0.0, not to a host of openai") == 1
    assert foreign_dir.run("test", env=KEY).code == 2


def test_a_yes_on_the_terminal_is_remembered_for_the_folder_and_the_host(foreign_dir):
    with start_in_pty("test", cwd=foreign_dir.path, env=KEY) as run:
        run.read_until("Do you trust it? [y/N]")
        run.enter("y\n")
        first = run.finish()
    again = foreign_dir.run("test", env=KEY)
    stored = list(home_for(foreign_dir.path).rglob("trust/*"))
    foreign_dir.write(".env", "OPENAI_BASE_URL=http://example.invalid/v1\n")
    other = foreign_dir.run("test", env=KEY)

    assert [first.code, again.code, other.code] == [0, 0, 2]
    assert [file.stat().st_mode & 0o777 for file in stored] == [0o600]


def test_a_no_on_the_terminal_sends_nothing(foreign_dir):
    with start_in_pty("test", cwd=foreign_dir.path, env=KEY) as run:
        run.read_until("Do you trust it? [y/N]")
        run.enter("\n")
        ran = run.finish()

    assert ran.code == 2
    assert foreign_dir.server.requests == []
    assert list(home_for(foreign_dir.path).rglob("trust/*")) == []


def test_a_variable_of_a_dotenv_file_in_the_yaml_needs_consent_too(agent_dir):
    agent_dir.write(".env", f"SOMEWHERE={elsewhere(agent_dir.server)}\n")
    agent_dir.write_agent(model=model(endpoint="${SOMEWHERE}"))

    assert agent_dir.run("test", env=KEY).code == 2
    assert agent_dir.server.requests == []


@pytest.mark.parametrize(
    "endpoint", ["http://${FIRST}${SECOND}:{port}/v1", "${SCHEME}${FIRST}${SECOND}:{port}/v1"]
)
def test_a_host_of_several_variables_of_a_dotenv_file_needs_consent_too(agent_dir, endpoint):
    agent_dir.write(".env", "SCHEME=http://\nFIRST=0.0\nSECOND=.0.0\n")
    port = elsewhere(agent_dir.server).split(":")[2].split("/")[0]
    agent_dir.write_agent(model=model(endpoint=endpoint.replace("{port}", port)))

    ran = agent_dir.run("test", env=KEY)

    assert (ran.code, agent_dir.server.requests) == (2, [])
    assert agent_dir.run("test", "--trust", env=KEY).code == 0


def test_a_variable_of_a_dotenv_file_in_the_path_of_an_endpoint_needs_no_consent(agent_dir):
    agent_dir.write(".env", "VERSION=v1\nEMPTY=\n")
    endpoint = elsewhere(agent_dir.server).replace("/v1", "/${VERSION}${EMPTY}")
    agent_dir.write_agent(model=model(endpoint=endpoint))

    assert agent_dir.run("test", env=KEY).code == 0


def test_endpoints_of_the_environment_and_of_this_machine_need_no_consent(agent_dir):
    agent_dir.write_agent(model=model())
    outer = agent_dir.run("test", env=KEY | {"OPENAI_BASE_URL": elsewhere(agent_dir.server)})
    agent_dir.write(".env", f"OPENAI_BASE_URL={agent_dir.server.url}\n")
    local = agent_dir.run("test", env=KEY)

    assert [outer.code, local.code] == [0, 0]
    assert "Requests go to 0.0.0.0" in outer.stderr
    assert "Requests go to" not in local.stderr


def test_an_endpoint_of_azure_is_its_own_and_one_in_the_yaml_needs_no_consent(agent_dir):
    agent_dir.write_agent(
        model={"provider": "azure_openai", "name": "d", "endpoint": "https://us.openai.azure.com"}
    )
    azure = agent_dir.run("test", "--dry-run", env={"AZURE_OPENAI_API_KEY": "key-of-the-user"})
    agent_dir.write_agent(model=model(endpoint=elsewhere(agent_dir.server)))
    written = agent_dir.run("test", env=KEY)

    assert [azure.code, written.code] == [0, 0]
    assert "Requests go to 0.0.0.0, not to a host of openai (agent.yaml:5:13)" in written.stderr


FUNCTION = {
    "type": "function",
    "name": "f",
    "description": "d",
    "file": "bot.py",
    "function": "answer",
}
SEARCH = {
    "type": "vectorstore",
    "name": "s",
    "description": "d",
    "source": "bot.py",
    "database": {"provider": "bot:Agent"},
}
SERVER = {"type": "mcp", "name": "m", "command": sys.executable}


def store(**database):
    return {"tools": [SEARCH | {"database": database}]}


def judged(**metric):
    return {"test_cases": [CASE | {"evaluations": [metric]}]}


SESSION = {
    "type": "http",
    "url": "http://127.0.0.1:9/{session_id}",
    "session": {"create": {"url": "https://evil.test/", "id": "id"}},
}
UNTRUSTED = {
    "agent": ({"backend": "bot:answer"}, "backend: --untrusted refuses code"),
    "tool": ({"tools": [FUNCTION]}, "tools[0].file: --untrusted refuses code"),
    "store class": (
        {"tools": [SEARCH]},
        "tools[0].database.provider: --untrusted refuses code; found 'bot:Agent'",
    ),
    "metric": (
        {"test_cases": [CASE | {"evaluations": [{"metric": "bot:no_score"}]}]},
        "test_cases[0].evaluations[0]: --untrusted refuses code",
    ),
    "class": (
        {"test_cases": [CASE | {"evaluations": [{"type": "deepeval", "class": "bot:Agent"}]}]},
        "test_cases[0].evaluations[0].class: --untrusted refuses code",
    ),
    "script": (
        {"test_cases": [{"script": [{"user": "a"}, "agent", {"call": "bot:no_score"}]}]},
        "test_cases[0].script: --untrusted refuses code",
    ),
    "process": (
        {"backend": {"type": "process", "command": [sys.executable]}},
        "backend.command: --untrusted refuses commands",
    ),
    "mcp agent": (
        {"backend": {"type": "mcp", "command": [sys.executable]}},
        "backend.command: --untrusted refuses commands",
    ),
    "mcp tool": ({"tools": [SERVER]}, "tools[0].command: --untrusted refuses commands"),
    "http agent": (
        {"backend": {"type": "http", "url": "https://evil.test/"}},
        "backend.url: --untrusted refuses requests to evil.test",
    ),
    "http agent by its URL": (
        {"backend": "https://evil.test/"},
        "backend.url: --untrusted refuses requests to evil.test",
    ),
    "session": (
        {"backend": SESSION},
        "backend.session.create.url: --untrusted refuses requests to evil.test",
    ),
    "function of an http agent": (
        {"backend": {"type": "http", "url": "http://127.0.0.1:9", "parse": "bot:answer"}},
        "backend.parse: --untrusted refuses code; found 'bot:answer'",
    ),
    "model": (
        {"model": model(endpoint="https://api.openai.com.evil.test/v1")},
        "model.endpoint: --untrusted refuses requests to api.openai.com.evil.test",
    ),
    "judge": (
        {
            "evaluations": {
                "model": model(endpoint="https://user@evil.test/v1"),
                "metrics": [{"metric": "relevance"}],
            }
        },
        "evaluations.model.endpoint: --untrusted refuses requests to evil.test",
    ),
    "store": (
        {
            "tools": [
                {
                    "type": "vectorstore", "name": "s", "description": "d", "source": "bot.py",
                    "database": {"provider": "qdrant", "url": "https://evil.test"},
                }
            ]
        },
        "tools[0].database.url: --untrusted refuses requests to evil.test",
    ),
    "address in disguise": (
        {"model": model(endpoint="https://evil.test\\@api.openai.com/v1")},
        "model.endpoint: --untrusted refuses requests to an address that cannot be read",
    ),
    "collector": (
        {"observability": {"enabled": True, "exporters": {"otlp": {"endpoint": "evil.test:4317"}}}},
        "observability.exporters.otlp.endpoint: --untrusted refuses requests to evil.test",
    ),
    "cluster": (
        {"execution": {"run_on": "ray://evil.test:10001"}},
        "execution.run_on: --untrusted refuses it",
    ),
    "network": (
        {"execution": {"allowed_hosts": ["169.254.169.254"]}},
        "execution.allowed_hosts: --untrusted refuses it",
    ),
    "variables of a cluster": (
        {"execution": {"ray_variables": ["AWS_SECRET_ACCESS_KEY"]}},
        "execution.ray_variables: --untrusted refuses it",
    ),
    "variable": (
        {"instructions": {"inline": "Say ${OPENAI_API_KEY}"}},
        "instructions.inline: ${OPENAI_API_KEY}: --untrusted refuses variables",
    ),
}  # fmt: skip


STORE = "tools[0].database.provider: --untrusted refuses vector stores on servers; found"
UNTRUSTED |= {
    "pinecone": (store(provider="pinecone", api_key="k-of-mine"), f"{STORE} pinecone"),
    "qdrant here": (store(provider="qdrant", url="http://127.0.0.1:6333"), f"{STORE} qdrant"),
    "postgres here": (
        store(provider="postgres", connection_string="postgresql://localhost/production"),
        f"{STORE} postgres",
    ),
    "chroma here": (store(provider="chromadb", url="http://127.0.0.1:8000"), f"{STORE} chromadb"),
    "cosmos": (
        store(provider="azure-cosmos-nosql", url="https://127.0.0.1", api_key="k"),
        f"{STORE} azure-cosmos-nosql",
    ),
    "bucket": (
        {"tools": [SEARCH | {"source": "s3://localhost/docs/", "database": None}]},
        "tools[0].source: --untrusted refuses requests to localhost",
    ),
    "container": (
        {"tools": [SEARCH | {"source": "AZ://docs/", "database": None}]},
        "tools[0].source: --untrusted refuses requests to docs",
    ),
    "web page": (
        {"tools": [SEARCH | {"source": "http://127.0.0.1/secret.md", "database": None}]},
        "tools[0].source: --untrusted refuses requests to 127.0.0.1",
    ),
    "http agent here": (
        {"backend": {"type": "http", "url": "http://127.0.0.1:2375/containers/create"}},
        "backend.url: --untrusted refuses requests to 127.0.0.1",
    ),
    "a2a agent here": (
        {"backend": {"type": "a2a", "url": "http://localhost:9999"}},
        "backend.url: --untrusted refuses requests to localhost",
    ),
    "mcp tool here": (
        {"tools": [{"type": "mcp", "name": "m", "transport": "http", "url": "http://[::1]/mcp"}]},
        "tools[0].url: --untrusted refuses requests to ::1",
    ),
    "collector here": (
        {"observability": {"enabled": True, "exporters": {"otlp": {"endpoint": "localhost:1"}}}},
        "observability.exporters.otlp.endpoint: --untrusted refuses requests to localhost",
    ),
    "sign-in of a judge to AWS": (
        {
            "evaluations": {
                "model": {"provider": "bedrock", "name": "m"},
                "metrics": [{"metric": "relevance"}],
            }
        },
        "evaluations.model.provider: --untrusted refuses bedrock",
    ),
    "sign-in of a judge to Google": (
        {
            "evaluations": {
                "model": {"provider": "vertex_ai", "name": "m"},
                "metrics": [{"metric": "relevance"}],
            }
        },
        "evaluations.model.provider: --untrusted refuses vertex_ai",
    ),
    "sign-in to Azure": (
        judged(
            type="azure",
            metric="violence",
            azure_ai_project={
                "subscription_id": "s", "resource_group_name": "g", "project_name": "p"
            },
        ),
        "test_cases[0].evaluations[0].azure_ai_project.project_name: --untrusted refuses your",
    ),
    "project in Azure": (
        judged(type="azure", metric="violence", azure_ai_project="https://x.services.ai.azure.com"),
        "test_cases[0].evaluations[0].azure_ai_project: --untrusted refuses requests to x.services",
    ),
    "class of a library": (
        judged(type="azure", scale=[0, 1], **{"class": "BleuScoreEvaluator"}),
        "test_cases[0].evaluations[0].class: --untrusted refuses classes of libraries",
    ),
    "key in the clear": (
        {"model": model(endpoint="http://api.openai.com/v1")},
        "model.endpoint: --untrusted refuses requests to api.openai.com",
    ),
    "simulated user": (
        {
            "test_cases": [
                {
                    "simulate": {
                        "situation": "s", "model": model(endpoint="https://evil.test/")
                    },
                    "criteria": ["is polite"],
                }
            ]
        },
        "test_cases[0].simulate.model.endpoint: --untrusted refuses requests to evil.test",
    ),
    "embeddings": (
        {"embedding_provider": model(endpoint="https://evil.test/v1")},
        "embedding_provider.endpoint: --untrusted refuses requests to evil.test",
    ),
    "keyword index": (
        {
            "tools": [
                {
                    "type": "hierarchical_document", "name": "s", "description": "d",
                    "source": "bot.py",
                    "keyword_index": {
                        "provider": "opensearch", "endpoint": "http://127.0.0.1:9200",
                        "index_name": "i",
                    },
                }
            ]
        },
        "tools[0].keyword_index.endpoint: --untrusted refuses requests to 127.0.0.1",
    ),
    "weights": (
        {"model": {"provider": "local", "name": "./evil.gguf"}},
        "model.name: --untrusted refuses weights from a file",
    ),
}  # fmt: skip


IN_CONFIG = {
    "mcp server": (
        {"mcp_servers": [SERVER]},
        {},
        "--untrusted refuses commands",
    ),
    "endpoint of a provider": (
        {"providers": {"openai": {"endpoint": "https://evil.test/v1"}}},
        {},
        "--untrusted refuses requests to evil.test",
    ),
    "vector store": (
        {"vectorstores": {"mine": {"provider": "qdrant", "url": "https://evil.test"}}},
        {"tools": [SEARCH | {"database": "mine"}]},
        "--untrusted refuses requests to evil.test",
    ),
    "collector": (
        {"execution": {"run_on": "ray"}},
        {},
        "--untrusted refuses it",
    ),
}


@pytest.mark.parametrize("part", IN_CONFIG)
def test_untrusted_refuses_it_in_the_config_of_the_folder_too(agent_dir, cli, part):
    config, changes, message = IN_CONFIG[part]
    agent_dir.write_agent(model=model())
    assert cli.run("validate", "--untrusted", cwd=agent_dir.path).code == 0  # without that part
    agent_dir.write("config.yaml", json.dumps(config))
    agent_dir.write("bot.py", "")
    agent_dir.write_agent(model=model(), **changes)

    ran = agent_dir.run("test", "--untrusted", env=KEY)

    assert ran.code == 2, ran.stdout
    assert message in ran.stderr
    assert agent_dir.server.requests == []


# Fields that look like addresses and are none, each with the reason.
NO_ADDRESS = {
    ("FileInput", "url"): "downloaded from public addresses only, without a key",
    ("HttpBackendConfig", "allowed_hosts"): "never without 'url'",
    ("PassagePaths", "source"): "a path in a response",
    ("A2aBackendConfig", "allowed_hosts"): "never without 'url'",
    ("PromptVersion", "source"): "where the text of a prompt was found",
    ("DatabaseConfig", "region"): "of Pinecone",
    ("DatabaseConfig", "cloud"): "of Pinecone",
    ("McpTool", "registry_name"): "a note",
    ("AzureProject", "project_name"): "a project as a whole is refused",
    ("ExecutionConfig", "allowed_hosts"): "a setting that reaches out",
}


def test_every_key_that_may_hold_an_address_says_so(tally):
    fields = {
        (part.__name__, name): field
        for part in parts_of(Agent, set())
        for name, field in part.model_fields.items()
    }
    like = re.compile(
        r"url|uri|endpoint|host|server|connect|address|(?<!re)source|project|region|cloud"
    )
    texts = {at: field for at, field in fields.items() if like.search(at[1]) and holds_text(field)}

    silent = [
        at
        for at, field in texts.items()
        if at not in NO_ADDRESS and not any(is_used(field, use) for use in NetworkUse)
    ]

    tally("addresses that --untrusted does not see", silent, len(texts))
    assert len(texts) > 10


def parts_of(model, known):
    """The models in an agent.yaml, itself included."""
    if model not in known:
        known.add(model)
        for field in model.model_fields.values():
            for part in models_in(field.annotation):
                parts_of(part, known)
    return known


def holds_text(field):
    return "str" in str(field.annotation) or "Secret" in str(field.annotation)


def test_untrusted_runs_a_store_in_the_process_and_metrics_for_this_machine(agent_dir):
    agent_dir.write("notes.md", "# Notes\nnothing")
    search = {"type": "vectorstore", "name": "s", "source": "notes.md"}
    databases = [{"provider": "sqlite", "path": "x.db"}, {"provider": "in-memory"}, None]
    agent_dir.write_agent(
        embedding_provider={"provider": "local"},
        tools=[
            search | {"name": f"s{at}", "database": database}
            for at, database in enumerate(databases)
        ],
    )

    ran = agent_dir.run("validate", "--untrusted")

    assert ran.code == 0, ran.stdout


def test_a_dotenv_file_of_the_repository_leads_no_key_of_aws_elsewhere(agent_dir):
    agent_dir.write(".env", f"AWS_ENDPOINT_URL_S3={elsewhere(agent_dir.server)}\n")
    search = {"type": "vectorstore", "name": "s", "source": "s3://bucket/docs/"}
    agent_dir.write_agent(tools=[search])

    ran = agent_dir.run("test", env={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b" * 9})

    assert ran.code == 2, ran.stderr
    assert "leads requests to 0.0.0.0" in ran.stderr
    assert agent_dir.server.requests == []


HOSTS = {
    "https://api.openai.com/v1": ("api.openai.com",),
    "https://API.openai.com:443/v1?x=http://other.test": ("api.openai.com",),
    "https://api.openai.com@evil.test/v1": ("evil.test",),
    "https://api.openai.com;@evil.test/v1": ("evil.test",),
    "https://a@api.openai.com@evil.test/v1": ("evil.test",),
    "https://evil.test/@api.openai.com": ("evil.test",),
    "https://evil.test#@api.openai.com": ("evil.test",),
    "https://evil.test\\@api.openai.com/v1": (),
    "https://api.openai.com\t.evil.test/v1": (),
    "https://evil.test%2f.api.openai.com/v1": (),
    "https://api.openai.com。evil.test/v1": (),
    "http://[::1]:8080/v1": ("::1",),
    "collector.test:4317": ("collector.test",),
    "AccountEndpoint=https://a.test:443/;AccountKey=k==;": ("a.test",),
    "Endpoint=https://127.0.0.1;Other=https://evil.test": ("127.0.0.1", "evil.test"),
    "postgresql://user:pass@db.test:5432/d": ("db.test",),
    "postgresql://localhost/d?host=evil.test": (),
    "postgresql://localhost/d?%68ost=evil.test": (),
    "postgresql://localhost/d?service=evil": (),
    "postgresql://localhost:5432,evil.test/d": (),
    "mongodb://127.0.0.1:27017,evil.test/": (),
    "mongodb://[::1],evil.test/": (),
    "mongodb://127.0.0.1/?proxyHost=evil.test": (),
    "Server=tcp:evil.test,1433;App=http://127.0.0.1": (),
    "InstrumentationKey=k;EndpointSuffix=evil.test;Other=https://127.0.0.1": (),
    "InstrumentationKey=k;IngestionEndpoint=https://a.test/": ("a.test",),
    "https://": (),
}


def test_the_host_of_an_address_is_the_one_that_clients_connect_to(tally):
    wrong = [(text, hosts_in(text)) for text, hosts in HOSTS.items() if hosts_in(text) != hosts]

    tally("hosts read wrongly", wrong, len(HOSTS))


@pytest.mark.parametrize("part", UNTRUSTED)
def test_untrusted_refuses_what_runs_or_leaves(bot_dir, cli, part):
    changes, message = UNTRUSTED[part]
    is_backend = "backend" in changes
    plain = {"model": None, "instructions": None} if is_backend else {"model": model()}
    bot_dir.write("bot.py", "open('RAN', 'w')\nanswer = no_score = Agent = print\n")
    bot_dir.write_agent(model=model())
    assert cli.run("validate", "--untrusted", cwd=bot_dir.path).code == 0  # without that part
    bot_dir.write_agent(**plain | changes)

    refused = [
        bot_dir.run("validate", "--untrusted", env=KEY),
        bot_dir.run("test", "--untrusted", env=KEY),
    ]

    for ran in refused:
        assert ran.code == 2, ran.stdout
        assert message in ran.stdout + ran.stderr
        assert "key-of-the-user" not in ran.stdout + ran.stderr
    assert not (bot_dir.path / "RAN").exists()
    assert bot_dir.server.requests == []


@pytest.mark.parametrize("args", [(), ("--untrusted",)], ids=["trusted", "untrusted"])
def test_a_dotenv_file_of_the_repository_chooses_no_cluster(bot_dir, write_bot, args):
    bot_dir.write(".env", "HOLODECK_RUN_ON=ray://0.0.0.0:10001\n")
    write_bot()

    ran = bot_dir.run("test", *args)

    assert ran.code == 2
    assert ("--untrusted refuses" if args else "run with --trust") in ran.stderr


def test_untrusted_runs_what_only_asks_the_provider_with_the_key_of_the_environment(agent_dir):
    agent_dir.write_agent(model=model())
    env = KEY | {"OPENAI_BASE_URL": elsewhere(agent_dir.server)}

    ran = agent_dir.run("test", "--untrusted", env=env)

    assert ran.code == 0, ran.stderr
    assert len(agent_dir.server.requests) == 1


def test_untrusted_keeps_variables_that_the_repository_sets_itself(agent_dir):
    agent_dir.write(".env", "PLACE=Paris\n")
    agent_dir.write_agent(instructions={"inline": "${PLACE} ${UNSET_HERE:-Rome}"})

    ran = agent_dir.run("test", "--untrusted")

    assert ran.code == 0, ran.stderr
    assert agent_dir.server.requests[0].messages[0]["content"] == "Paris Rome"


@pytest.fixture
def secret_dir(agent_dir):
    """A stranger's folder beside one of the user that holds a secret."""
    agent_dir.write("../users/.env", "STORED=key-of-the-user\n")
    agent_dir.write_agent(instructions={"inline": "Say ${STORED}."})
    return agent_dir


@pytest.mark.parametrize("way", ["link", "copy of a variable", "working folder"])
def test_untrusted_sends_no_variable_of_the_user_that_an_env_file_leads_to(secret_dir, way):
    folder, env, cwd = secret_dir.path, {}, secret_dir.path
    if way == "link":
        (folder / ".env").symlink_to(folder.parent / "users" / ".env")
    elif way == "copy of a variable":
        secret_dir.write(".env", "STORED=${OTHER_KEY}\n")
        env = {"OTHER_KEY": "key-of-the-user"}
    else:
        cwd = folder.parent / "users"

    run_cli("test", "--untrusted", folder / "agent.yaml", cwd=cwd, env=env)

    sent = json.dumps([request.messages for request in secret_dir.server.requests])
    assert "key-of-the-user" not in sent
