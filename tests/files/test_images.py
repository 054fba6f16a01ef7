"""Images reach models that take images, and others as text."""

import base64
import json
import os

import pytest

from holodeck import TestExecutor
from support.documents import picture

PNG = picture("x")
BMP = b"BM" + bytes(60)


async def run(agent_dir, *files, backend=None, turns=False, **model):
    turn = {"input": "What is it?", "files": list(files)}
    written = [{**turn, "evaluations": [{"metric": "contains", "value": "OK"}]}]
    if turns:
        written = [{"turns": [*written, {"input": "Sure?"}]}]
    agent_dir.write_agent(test_cases=written, backend=backend, model=agent_dir.model(**model))
    executor = TestExecutor(str(agent_dir.path / "agent.yaml"))
    return (await executor.execute_tests()).results[0]


@pytest.fixture
def image(agent_dir):
    agent_dir.write("chart.png", PNG)
    return {"path": "chart.png", "type": "image", "description": "A chart"}


@pytest.mark.parametrize("turns", [False, True], ids=["input", "turns"])
@pytest.mark.parametrize("backend", ["chat", None], ids=["chat", "semantic kernel"])
async def test_an_image_is_sent_to_the_model(agent_dir, fake_openai, image, backend, turns):
    result = await run(agent_dir, image, backend=backend, turns=turns)

    assert result.passed, result.errors
    text, picture_part = fake_openai.requests[-1].messages[1]["content"]
    assert text == {
        "type": "text",
        "text": "File: chart.png\nA chart\n(attached as an image)\n\nWhat is it?",
    }
    sent = base64.b64encode(PNG).decode()
    assert picture_part["type"] == "image_url"
    assert picture_part["image_url"]["url"] == f"data:image/png;base64,{sent}"
    [processed] = (result.turns[0] if turns else result).processed_files
    assert processed.metadata == {
        "path": "chart.png",
        "type": "image",
        "size_bytes": len(PNG),
        "media_type": "image/png",
        "sent_as": "image",
    }


@pytest.mark.parametrize("provider", ["azure_openai", "anthropic", "ollama"])
async def test_an_image_is_sent_in_the_protocol_of_the_provider(
    agent_dir, fake_openai, image, provider
):
    result = await run(agent_dir, image, provider=provider, endpoint=fake_openai.root)

    assert result.passed, result.errors
    request = fake_openai.requests[-1]
    message = request.body["messages"][-1]
    parts = {
        "openai": lambda: message["content"][1]["image_url"]["url"].partition("base64,")[2],
        "anthropic": lambda: message["content"][1]["source"]["data"],
        "ollama": lambda: message["images"][0],
    }
    assert parts[request.dialect]() == base64.b64encode(PNG).decode()
    assert request.prompt.endswith("What is it?")


@pytest.mark.parametrize(
    ("keys", "backend"),
    [({"ocr": True}, None), ({}, "own:reply")],
    ids=["asked for", "an agent that takes none"],
)
async def test_otherwise_the_text_in_an_image_is_sent(agent_dir, image, monkeypatch, keys, backend):
    agent_dir.write("own.py", "def reply(message):\n    return f'OK: {message}'\n")
    program = agent_dir.write("bin/tesseract", "#!/bin/sh\necho Order 4711\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    result = await run(agent_dir, {**image, **keys}, backend=backend)

    assert result.passed, result.errors
    assert result.agent_response == ("OK: File: chart.png\nA chart\nOrder 4711\n\nWhat is it?")


async def test_an_image_that_models_do_not_take_is_an_error(agent_dir, fake_openai):
    agent_dir.write("scan.bmp", BMP)

    result = await run(agent_dir, {"path": "scan.bmp", "type": "image"}, backend="chat")

    assert result.errors == [
        "File error: scan.bmp: is a BMP image, which models do not take; save it as PNG or JPEG"
    ]
    assert fake_openai.requests == []


async def test_a_criterion_says_that_its_judge_did_not_see_the_image(agent_dir, fake_openai, image):
    verdict = json.dumps({"c1": {"reasoning": "so it seems", "status": "passed"}})
    fake_openai.when("# Criteria", verdict).otherwise("OK")
    case = {"input": "What is it?", "files": [image], "criteria": ["The chart is described"]}
    agent_dir.write_agent(test_cases=[case], backend="chat", model=agent_dir.model())

    result = (await TestExecutor(str(agent_dir.path / "agent.yaml")).execute_tests()).results[0]

    [row] = result.criteria
    assert row.reasoning == (
        "so it seems (judged without 1 image of the test case, which only the agent got)"
    )
