"""Projects with the keys of HoloDeck's samples run as they are, against servers on loopback."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from fakes import AgentFolder, FakeOpenAI, Reply, Request
from support import store_servers
from support.collector import Collector, grpc_collector
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


@dataclass(frozen=True)
class Sample:
    """What is seen of one project."""

    answer: str
    """What its model says once it has called the tools."""
    calls: list[tuple[str, Mapping[str, str]]]
    metrics: set[str]
    retrieved: list[str]
    """Texts of the passages."""
    paths: set[str]
    """Where its models are asked."""
    other_results: dict[str, str] = field(default_factory=dict)
    """By the name of a tool that retrieves nothing."""


PROJECTS = {
    "bike-shop": Sample(
        '{"category": "repair", "urgency": "low", "confidence_score": 0.9, "reasons": []}',
        [
            ("handbook", {"query": "flat tyre"}),
            ("faq", {"query": "flat tyre"}),
            ("parts", {"query": "inner tube"}),
            ("read_notes", {"about": "tyres"}),
        ],
        {"faithfulness", "answer_relevancy", "contextual_relevancy", "Clarity", "Kindness"},
        ["costs twelve euros", "Yes, for twelve euros.", "Mended for twelve euros."],
        {"/v1/chat/completions", "/v1/embeddings"},
        {"read_notes": "tyres: ***-May"},
    ),
    "garden-club": Sample(
        "In the morning, every second day.",
        [
            ("guide", {"query": "water tomatoes"}),
            ("questions", {"query": "water tomatoes"}),
            ("plants", {"query": "water tomatoes"}),
            ("read_notes", {"about": "tomatoes"}),
        ],
        {"faithfulness", "Helpfulness"},
        ["every second day.", "Better in the morning", "a roof against rain"],
        {"/api/embed", "/v1/chat/completions"},
        {"read_notes": "tomatoes: nothing"},
    ),
    "letter-desk": Sample(
        '{"kind": "order", "senders": [{"name": "Ada", "wishes": ["twelve blue envelopes"]}],'
        ' "confidence_score": 0.9}',
        [("templates", {"query": "order of envelopes"}), ("list_directory", {})],
        {"rouge", "bleu", "meteor", "Completeness"},
        ["it leaves us tomorrow"],
        {
            "/openai/deployments/gpt-4o/chat/completions",
            "/openai/deployments/text-embedding-ada-002/embeddings",
        },
        {"list_directory": "templates.md"},
    ),
    "town-law": Sample(
        "A covered bench is a bench with a roof.",
        [("law_search", {"query": "covered bench"})],
        {"rouge", "bleu", "groundedness", "contextual_precision"},
        ["means a bench with a roof"],
        {
            "/v1/messages",
            "/api/embed",
            "/openai/deployments/contexts/chat/completions",
            "/openai/deployments/judge/chat/completions",
        },
    ),
}
IN_CHROMA = ["garden-club", "letter-desk"]
"""Projects whose documents are in Chroma."""


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


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with grpc_collector() as one:
        yield one


@pytest.fixture(scope="module")
def chroma_url() -> Iterator[str]:
    with store_servers.chroma_server() as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server


def project(name: str, path: Path, model: FakeOpenAI) -> AgentFolder:
    """A copy of the project, whose model calls its tools once and then answers.

    Beside it, a program `npx` starts the server of the tests instead of a public package.
    """
    shutil.copytree(SAMPLES / name, path / name)
    sample = PROJECTS[name]
    model.when(lambda one: "/contexts/" in one.path, "This is about the law.")
    model.when(lambda one: not (one.tools or one.wants_embeddings), judged)
    model.when(lambda one: bool(one.tool_results), sample.answer)
    model.otherwise(Reply(tool_calls=sample.calls))
    npx = path / "bin" / "npx"
    npx.parent.mkdir()
    server = shlex.join([sys.executable, "-I", str(SAMPLES / "notes_server.py")])
    npx.write_text(
        '#!/bin/sh\ncase "$1 $2" in "-y @modelcontextprotocol/server-"*) shift 2 ;; *) exit 64 ;;'
        f' esac\nexec {server} "$@"\n'
    )
    npx.chmod(0o755)
    return AgentFolder(path / name, model)


def variables(folder: AgentFolder, **others: str) -> dict[str, str]:
    """The variables that the files of the projects use."""
    return {
        "MODEL_URL": folder.server.url,
        "MODEL_ROOT": folder.server.root,
        "MODEL_KEY": "not-a-real-key",
        "OLLAMA_URL": folder.server.root,
        "AZURE_OPENAI_ENDPOINT": folder.server.root,
        "AZURE_OPENAI_API_KEY": "not-a-real-key",
        "AZURE_OPENAI_DEPLOYMENT_NAME": "contexts",
        "CHROMA_URL": "http://127.0.0.1:9",
        "COLLECTOR": "http://127.0.0.1:9",
        "PYTHON": sys.executable,
        "NOTES_SERVER": str(SAMPLES / "notes_server.py"),
        "NOTES_KEY": "repaired-in-May",
        "PATH": f"{folder.path.parent / 'bin'}:/usr/bin:/bin",
        "HOLODECK_CACHE_DIR": str(folder.path / ".cache"),
        **others,
    }


def check_run(folder: AgentFolder, collector: Collector, **others: str) -> None:
    """Run the project and compare with what is to be seen of it."""
    expected = PROJECTS[folder.path.name]
    env = variables(folder, COLLECTOR=f"http://{collector.url}", **others)

    ran = folder.run("test", "-o", "report.json", env=env)

    assert ran.code == 0, ran.stdout + ran.stderr
    [result] = json.loads((folder.path / "report.json").read_text())["results"]
    invocations = result["tool_invocations"]
    assert [(one["name"], one["args"]) for one in invocations] == expected.calls
    assert {one["error"] for one in invocations} == {None}
    assert result["tools_matched"] is not False
    assert result["agent_response"] == expected.answer
    passages = [text for one in invocations for text in one["passages"] or ()]
    assert [text for text in expected.retrieved if not any(text in one for one in passages)] == []
    others_found = {one["name"]: one["result"] for one in invocations if not one["passages"]}
    assert others_found == expected.other_results
    rows = {one["metric_name"]: one for one in result["metric_results"]}
    assert rows.keys() == expected.metrics
    assert [one for one in rows.values() if not one["passed"] or one["error"]] == []
    assert {one.path for one in folder.server.requests} == expected.paths
    service = f"holodeck-{folder.path.name}"
    assert collector.resource["service.name"] == service
    assert "holodeck.case.outcomes" in collector.metrics


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_a_project_of_holodeck_runs_as_it_is(name, tmp_path, model, collector):
    folder = project(name, tmp_path, model)
    if name in IN_CHROMA:  # whose server is not everywhere; the next test has it
        config = folder.path / "config.yaml"
        store = "provider: chromadb\n    connection_string: ${CHROMA_URL}\n"
        assert store in config.read_text()
        config.write_text(config.read_text().replace(store, "provider: in-memory\n"))

    check_run(folder, collector)


@pytest.mark.parametrize("name", IN_CHROMA)
def test_a_project_of_holodeck_runs_with_its_documents_in_chroma(
    name, tmp_path, model, collector, chroma_url
):
    check_run(project(name, tmp_path, model), collector, CHROMA_URL=chroma_url)


@pytest.mark.parametrize("name", IN_CHROMA)
def test_a_project_is_valid_while_its_servers_are_down(name, tmp_path, model):
    folder = project(name, tmp_path, model)

    ran = folder.run("validate", env=variables(folder))

    if find_spec("chromadb") is None:
        assert ran.code == 2
        assert "provider: chromadb: needs an optional library" in ran.stdout
    else:
        assert (ran.code, ran.stderr) == (0, ""), ran.stdout + ran.stderr
        assert ran.stdout.endswith(": ok\n")
    assert model.requests == []


def test_what_has_no_effect_is_told_once_and_nothing_else_is_wrong(tmp_path, model):
    folder = project("town-law", tmp_path, model)

    ran = folder.run("validate", env=variables(folder))

    assert ran.code == 0, ran.stdout + ran.stderr
    assert "warning" not in ran.stdout
