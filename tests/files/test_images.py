"""Images reach models that take images, and others as text."""

import base64
import json
import os

import pytest

from fakes import Reply
from holodeck import TestExecutor
from support.documents import picture
from support.token_probabilities import yes

PNG = picture("x")
SENT = base64.b64encode(PNG).decode()
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


VERDICT = json.dumps({"c1": {"reasoning": "so it seems", "status": "passed"}})
PARTS = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SENT}"}}]
JUDGED = {"type": "judge", "name": "described", "criteria": ["Is the chart described?"]}


@pytest.fixture
def judged(agent_dir, fake_openai):
    """Runs a case whose agent gets an image; the judge `wise` answers images with a status."""

    async def run_case(image, *, turns=None, status=200, metrics=(), **keys):
        def said(request):
            if request.body["model"] != "wise":
                return "A chart."
            if status != 200 and images_in(request):
                return Reply(json={"error": {"message": "no images, please"}}, status=status)
            if "# Criteria" in request.prompt:
                return VERDICT
            if "response_format" not in request.body:
                return yes(0.9)
            wanted = request.body["response_format"]["json_schema"]["schema"]["properties"]
            words = {"reason": "it is", "answer": "yes", "score": 1}
            return json.dumps({key: words.get(key, "a text") for key in wanted})

        fake_openai.otherwise(said)
        turn = {"input": "What is it?", "files": [image]}
        case = {"turns": [turn | turns[0], {"input": "Sure?"} | turns[1]]} if turns else turn
        agent_dir.write_agent(
            test_cases=[{**case, **keys}],
            backend="chat",
            model=agent_dir.model(),
            evaluations={
                "model": agent_dir.model(name="wise"),
                **({"metrics": list(metrics)} if metrics else {}),
            },
        )
        executor = TestExecutor(str(agent_dir.path / "agent.yaml"))
        return (await executor.execute_tests()).results[0]

    return run_case


def images_in(request):
    contents = [one["content"] for one in request.body["messages"]]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [part for part in parts if part["type"] == "image_url"]


def asked(server):
    return [request for request in server.requests if request.body["model"] == "wise"]


@pytest.mark.parametrize("turns", [None, [{}, {}]], ids=["input", "turns"])
async def test_the_judge_of_criteria_sees_the_images_of_a_case(judged, fake_openai, image, turns):
    result = await judged(image, turns=turns, criteria=["The chart is described"])

    [request] = asked(fake_openai)
    assert images_in(request) == PARTS
    assert "[image_url: image/png" in request.prompt
    assert [row.reasoning for row in result.criteria] == ["so it seems"]


async def test_a_judge_of_anthropic_gets_the_images_in_its_protocol(agent_dir, fake_openai, image):
    fake_openai.when("# Criteria", VERDICT).otherwise("OK")
    model = agent_dir.model(provider="anthropic", endpoint=fake_openai.root)
    case = {"input": "What is it?", "files": [image], "criteria": ["The chart is described"]}
    agent_dir.write_agent(test_cases=[case], model=model)

    result = (await TestExecutor(str(agent_dir.path / "agent.yaml")).execute_tests()).results[0]

    assert [row.reasoning for row in result.criteria] == ["so it seems"]
    text, part = fake_openai.requests[-1].body["messages"][0]["content"]
    assert text["type"] == "text"
    source = {"type": "base64", "media_type": "image/png", "data": SENT}
    assert part == {"type": "image", "source": source}


@pytest.mark.parametrize("turns", [None, [{}, {}]], ids=["input", "turns"])
async def test_a_judged_metric_sees_the_images_of_a_case(judged, fake_openai, image, turns):
    result = await judged(image, turns=turns, metrics=[JUDGED])

    [request] = asked(fake_openai)
    assert images_in(request) == PARTS
    [row] = result.metric_results
    assert (row.passed, row.note) == (True, None)


async def test_a_judged_metric_of_a_turn_sees_the_images_of_that_turn(judged, fake_openai, image):
    await judged(image, turns=[{"evaluations": [JUDGED]}] * 2)

    assert [images_in(request) for request in asked(fake_openai)] == [PARTS, []]


async def test_a_metric_about_the_response_alone_shows_no_images(judged, fake_openai, image):
    result = await judged(image, metrics=[JUDGED | {"inputs": ["response"]}])

    assert [images_in(request) for request in asked(fake_openai)] == [[]]
    assert result.metric_results[0].note is None


@pytest.mark.parametrize("status", [400, 422])
async def test_what_a_judge_without_eyes_did_not_see_is_said(judged, fake_openai, image, status):
    result = await judged(image, status=status, metrics=[JUDGED], criteria=["It is described"])

    [row], [criterion] = result.metric_results, result.criteria
    assert (row.passed, row.note.startswith("judged without 1 image: the judge")) == (True, True)
    assert "no images, please" in row.note
    assert criterion.status == "passed"
    assert "(judged without 1 image: the judge openai/wise" in criterion.reasoning
    answered = [request for request in asked(fake_openai) if not images_in(request)]
    assert len(answered) == 2


async def test_refused_images_do_not_make_a_judge_count_as_down(judged, fake_openai, image):
    metrics = [JUDGED | {"name": f"described {number}"} for number in range(12)]

    result = await judged(image, status=400, metrics=metrics)

    assert [row.error for row in result.metric_results] == [None] * 12


async def test_other_judged_metrics_say_that_they_show_no_images(judged, image):
    metric = {"type": "geval", "name": "good", "evaluation_steps": ["Look"], "strict_mode": True}

    result = await judged(image, metrics=[metric | {"criteria": "Good?"}])

    [row] = result.metric_results
    assert row.passed
    assert row.note == "judged without 1 image of the test case, which its prompt has no place for"


async def test_images_are_not_in_the_record_and_scoring_says_so(agent_dir, judged, image):
    await judged(image, metrics=[JUDGED], criteria=["It is described"])
    assert agent_dir.run("test").code == 0

    ran = agent_dir.run("score", "-o", "report.json")

    assert ran.code == 0, ran.stderr
    report = json.loads((agent_dir.path / "report.json").read_text())
    [row], [criterion] = report["results"][0]["metric_results"], report["results"][0]["criteria"]
    assert row["note"] == "judged without 1 image of the test case, which are not in the record"
    assert "(judged without 1 image of the test case" in criterion["reasoning"]
    assert SENT not in json.dumps(report)
