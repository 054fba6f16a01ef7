import pytest

from fakes import FakeOpenAI
from holodeck.errors import BackendInitError, ConfigError
from holodeck.lib.backends.base import AgentBackend
from holodeck.lib.backends.selector import BACKENDS, BackendSelector
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

MODEL = {"provider": "openai", "name": "fake", "api_key": "none"}
SPOKEN = {"inline": "Be brief."}


def agent(folder, **fields):
    return Agent(name="a", **fields).with_base_dir(folder)


async def answer_of(configured, **options):
    backend = await BackendSelector.select(configured, **options)
    try:
        assert isinstance(backend, AgentBackend)
        return (await backend.invoke_once("hi")).response
    finally:
        await backend.teardown()


async def test_a_module_and_attribute_lead_to_python_code(tmp_path):
    (tmp_path / "agents.py").write_text("def agent(message): return message + '!'")

    assert await answer_of(agent(tmp_path, backend="agents:agent")) == "hi!"


async def test_a_mapping_leads_to_a_url(tmp_path):
    with FakeOpenAI() as server:
        server.reply(json={"response": "hello"})
        http = {"type": "http", "url": server.root}

        assert await answer_of(agent(tmp_path, backend=http)) == "hello"


@pytest.mark.parametrize("backend", [None, "semantic_kernel"])
async def test_nothing_leads_to_the_built_in_agent(tmp_path, backend):
    with FakeOpenAI() as server:
        model = MODEL | {"endpoint": server.url}
        configured = agent(tmp_path, model=model, instructions=SPOKEN, backend=backend)

        assert await answer_of(configured) == "OK: hi"


async def test_the_settings_reach_the_backend(tmp_path):
    (tmp_path / "agents.py").write_text("import time\ndef agent(message): time.sleep(30)")
    configured = agent(tmp_path, backend="agents:agent")

    backend = await BackendSelector.select(configured, execution=ExecutionConfig(llm_timeout=0.05))

    with pytest.raises(Exception, match=r"no answer within 0\.05 s"):
        await backend.invoke_once("hi")


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("semantic_kernl", "unknown backend 'semantic_kernl'; did you mean 'semantic_kernel'"),
        ("http", "'http' needs more; write '{type: http, url: …}'"),
        ("agents:agnt", "did you mean 'agent'"),
        ({"type": "http", "url": "nowhere"}, r"backend\.url: 'nowhere' is not a URL"),
    ],
)
async def test_what_leads_nowhere_is_a_configuration_error(tmp_path, backend, said):
    (tmp_path / "agents.py").write_text("def agent(message): return message")

    with pytest.raises(ConfigError, match=said):
        await BackendSelector.select(agent(tmp_path, backend=backend))


async def test_an_agent_that_cannot_be_made_is_an_init_error(tmp_path):
    (tmp_path / "agents.py").write_text("def agent(): raise OSError('no licence')")

    with pytest.raises(BackendInitError, match="OSError: no licence"):
        await BackendSelector.select(agent(tmp_path, backend="agents:agent"))


@pytest.mark.parametrize("options", [{"tool_instances": {"a": 1}}, {"mode": "tests"}])
async def test_options_that_mean_nothing_are_refused(tmp_path, options):
    with pytest.raises(ConfigError):
        await BackendSelector.select(agent(tmp_path, backend="agents:agent"), **options)


def test_every_backend_of_the_table_can_be_loaded():
    assert all(callable(BACKENDS.load(name)) for name in BACKENDS.names())
