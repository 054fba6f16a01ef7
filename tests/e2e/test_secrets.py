"""No secret reaches stdout, stderr or a report, wherever it came from and whoever repeats it."""

import pytest

from fakes import case
from support.checks import assert_plain

KEY = "sk-proj-AbCdEfGhIjKlMnOpQrStUvWx"


# Semantic Kernel takes seconds to import.
@pytest.mark.parametrize(
    ("source", "backend"),
    [
        *((source, "chat") for source in ("agent.yaml", ".env", "environment", "substituted")),
        ("agent.yaml", "semantic_kernel"),
        ("environment", "semantic_kernel"),
    ],
)
def test_a_key_that_the_provider_repeats_is_masked_wherever_it_came_from(
    agent_dir, source, backend
):
    agent_dir.server.when("answer", f"your key is {KEY}, right?")
    agent_dir.server.otherwise(status=400, content=f"the key {KEY} may not do this")
    keys = {"agent.yaml": KEY, "substituted": "${THE_VALUE}"}
    agent_dir.write_agent(
        backend=backend,
        model=agent_dir.model(api_key=keys.get(source)),
        test_cases=[case("error", "fail"), case("answer", "answer", contains="nothing of it")],
    )
    if source == ".env":
        agent_dir.write(".env", f"OPENAI_API_KEY={KEY}\n")
    env = {"environment": {"OPENAI_API_KEY": KEY}, "substituted": {"THE_VALUE": KEY}}

    ran = agent_dir.run("test", "-vv", "-o", "r.md", "-o", "r.json", env=env.get(source))

    assert ran.code == 3
    sent = {request.headers["authorization"] for request in agent_dir.server.requests}
    assert sent == {f"Bearer {KEY}"}
    written = [ran.stdout, ran.stderr]
    written += [path.read_text(encoding="utf-8") for path in agent_dir.path.glob("r.*")]
    assert len(written) == 4
    assert not [text for text in written if KEY[:20] in text]
    assert "may not do this" in ran.stdout


def test_the_header_of_an_http_agent_is_masked_too(agent_dir):
    agent_dir.server.otherwise(lambda request: f'{{"response": "{request.headers["x-pass"]}"}}')
    backend = {"type": "http", "url": agent_dir.server.root, "headers": {"X-Pass": KEY}}
    agent_dir.write_agent(model=None, instructions=None, backend=backend)

    ran = agent_dir.run("test", "-o", "r.json")

    assert_plain(ran)
    assert ran.code == 1
    assert KEY[:20] not in ran.stdout + (agent_dir.path / "r.json").read_text(encoding="utf-8")
    assert agent_dir.server.requests[0].headers["x-pass"] == KEY


def test_a_secret_in_a_configuration_error_is_masked(agent_dir):
    agent_dir.write_agent(model=agent_dir.model(endpoint=KEY))

    ran = agent_dir.run("test", env={"SOME_TOKEN": KEY})

    assert ran.code == 2
    assert KEY[:20] not in ran.stderr
    assert "endpoint" in ran.stderr
