"""Images reach models that take images, and others as text."""

import base64
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


@pytest.mark.parametrize(
    ("keys", "model"),
    [({"ocr": True}, {}), ({}, {"provider": "anthropic"})],
    ids=["asked for", "a client that loses images"],
)
async def test_other_models_get_the_text_in_an_image(
    agent_dir, fake_openai, image, monkeypatch, keys, model
):
    program = agent_dir.write("bin/tesseract", "#!/bin/sh\necho Order 4711\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    result = await run(agent_dir, {**image, **keys}, **model)

    assert result.passed, result.errors
    assert fake_openai.requests[-1].prompt == (
        "File: chart.png\nA chart\nOrder 4711\n\nWhat is it?"
    )


async def test_an_image_that_models_do_not_take_is_an_error(agent_dir, fake_openai):
    agent_dir.write("scan.bmp", BMP)

    result = await run(agent_dir, {"path": "scan.bmp", "type": "image"}, backend="chat")

    assert result.errors == [
        "File error: scan.bmp: is a BMP image, which models do not take; save it as PNG or JPEG"
    ]
    assert fake_openai.requests == []
