"""Projects with the keys of HoloDeck's samples run as they are, against servers on loopback."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from fakes import AgentFolder, FakeOpenAI, Reply, Request
from support.deepeval_cases import verdicts

SAMPLES = Path(__file__).parent / "holodeck_samples"
JUDGED = {
    "score": 9,
    "steps": ["Look at it"],
    "truths": ["one"],
    "claims": ["one"],
    "statements": ["one"],
    "verdicts": verdicts("yes", 1, statement="one"),
    "reason": "the reason",
}
"""What the judge says, by a key of the answer that it is asked for."""
ANSWERS = {
    "bike-shop": (
        '{"category": "repair", "urgency": "low", "confidence_score": 0.9, "reasons": []}'
    ),
    "town-law": "A covered bench is a bench with a roof.",
}
CALLS = {
    "bike-shop": [
        ("handbook", {"query": "flat tyre"}),
        ("faq", {"query": "flat tyre"}),
        ("parts", {"query": "inner tube"}),
        ("read_notes", {"about": "tyres"}),
    ],
    "town-law": [("law_search", {"query": "covered bench"})],
}
METRICS = {
    "bike-shop": {
        *("faithfulness", "answer_relevancy", "contextual_relevancy", "Clarity", "Kindness"),
    },
    "town-law": {"rouge", "bleu", "groundedness", "contextual_precision"},
}
RETRIEVED = {
    "bike-shop": ["costs twelve euros", "Yes, for twelve euros.", "Mended for twelve euros."],
    "town-law": ["means a bench with a roof"],
}


def judged(request: Request) -> str:
    """The judge's answer, for the schema in the request of OpenAI's or Ollama's API."""
    body = request.body
    schema = (
        body["format"] if "format" in body else body["response_format"]["json_schema"]["schema"]
    )
    wanted = schema["properties"]
    if "status" in wanted:  # groundedness, on its own scale
        return json.dumps({"reason": "the reason", "score": 4, "status": "completed"})
    return json.dumps({key: JUDGED[key] for key in wanted})


@pytest.fixture
def sample(tmp_path: Path, request: pytest.FixtureRequest):
    """A copy of the project, whose model calls its tools once and then answers."""
    name = request.param
    shutil.copytree(SAMPLES / name, tmp_path / name)
    with FakeOpenAI() as server:
        server.when(lambda one: one.model == "judge" or "/judge/" in one.path, judged)
        server.when(lambda one: "/contexts/" in one.path, "This is about the law.")
        server.when(lambda one: bool(one.tool_results), ANSWERS[name])
        server.otherwise(Reply(tool_calls=CALLS[name]))
        yield AgentFolder(tmp_path / name, server)


def variables(folder: AgentFolder) -> dict[str, str]:
    """The variables that the files of the projects use."""
    return {
        "MODEL_URL": folder.server.url,
        "MODEL_ROOT": folder.server.root,
        "MODEL_KEY": "not-a-real-key",
        "AZURE_OPENAI_ENDPOINT": folder.server.root,
        "AZURE_OPENAI_API_KEY": "not-a-real-key",
        "AZURE_OPENAI_DEPLOYMENT_NAME": "contexts",
        "COLLECTOR": "http://127.0.0.1:9",
        "PYTHON": sys.executable,
        "NOTES_SERVER": str(SAMPLES / "notes_server.py"),
        "NOTES_KEY": "repaired in May",
        "HOLODECK_CACHE_DIR": str(folder.path / ".cache"),
    }


@pytest.mark.parametrize("sample", sorted(METRICS), indirect=True, ids=str)
def test_a_project_of_holodeck_runs_as_it_is(sample):
    name = sample.path.name

    ran = sample.run("test", "-o", "report.json", env=variables(sample))

    assert ran.code == 0, ran.stdout + ran.stderr
    [result] = json.loads((sample.path / "report.json").read_text())["results"]
    calls = [(one["name"], one["args"]) for one in result["tool_invocations"]]
    assert calls == CALLS[name]
    assert {one["error"] for one in result["tool_invocations"]} == {None}
    assert result["tools_matched"] is True
    assert result["agent_response"] == ANSWERS[name]
    passages = [text for one in result["tool_invocations"] for text in one["passages"] or ()]
    assert [text for text in RETRIEVED[name] if not any(text in one for one in passages)] == []
    rows = {one["metric_name"]: one for one in result["metric_results"]}
    assert rows.keys() == METRICS[name]
    assert [one for one in rows.values() if not one["passed"] or one["error"]] == []


def test_what_has_no_effect_is_told_once_and_nothing_else_is_wrong(tmp_path):
    with FakeOpenAI() as server:
        folder = AgentFolder(tmp_path / "town-law", server)
        shutil.copytree(SAMPLES / "town-law", folder.path)

        ran = folder.run("validate", env=variables(folder))

    said = "claude: belongs to other commands of HoloDeck; it has no effect here"
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("warning") == ran.stdout.count(said) + 1 == 2
