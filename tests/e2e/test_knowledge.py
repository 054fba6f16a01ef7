"""Agents that search documents, end to end: the command, a model server, and the embedded store."""

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from fakes import AgentFolder, FakeOpenAI, Reply, Request, case, start_cli
from support.documents import pdf

RETURNS = "# Returns\n\nYou may return shoes within thirty days of purchase.\n"
SHIPPING = "# Shipping\n\nOrders are shipped from Rotterdam by bicycle.\n"


@pytest.fixture
def folder(tmp_path: Path):
    """An agent whose model searches for the user's question, and then repeats what it found."""
    with FakeOpenAI() as server:
        server.when(lambda request: bool(request.tool_results), quote_results)
        server.otherwise(lambda request: Reply(tool_calls=[("kb", {"query": request.prompt})]))
        folder = AgentFolder(tmp_path / "agent", server)
        folder.write("docs/returns.md", RETURNS)
        folder.write("docs/shipping.md", SHIPPING)
        yield folder


def quote_results(request: Request) -> Reply:
    return Reply(f"I found: {request.tool_results[-1]}")


def search_agent(folder: AgentFolder, **overrides) -> dict:
    tool = {"type": "vectorstore", "name": "kb", "description": "Terms.", "source": "docs"}
    cases = [case("asks", "return shoes within days", contains="thirty days")]
    return {"tools": [tool | overrides], "test_cases": cases, "backend": "chat"}


def embedded(server: FakeOpenAI) -> list[str]:
    return [text for one in server.requests if one.wants_embeddings for text in one.embedded_texts]


def run(folder: AgentFolder, *args: str, env: dict | None = None):
    cache = {"HOLODECK_CACHE_DIR": str(folder.path.parent / "cache")}
    return folder.run("test", *args, env=cache | (env or {}))


def test_an_agent_answers_from_the_documents_of_a_folder(folder):
    folder.write(
        "grader.py", "def check(context):\n    return len(context.retrieval_context) == 2\n"
    )
    agent = search_agent(folder)
    agent["test_cases"][0]["evaluations"].append({"type": "code", "grader": "grader:check"})
    folder.write_agent(**agent)

    ran = run(folder, "--output", "report.json")

    assert ran.code == 0, ran.stdout + ran.stderr
    assert "Ingested 2 of 2 documents for kb, 2 chunks" in ran.stderr
    [result] = json.loads((folder.path / "report.json").read_text())["results"]
    [invocation] = result["tool_invocations"]
    assert invocation["passages"] == [RETURNS.strip(), SHIPPING.strip()]
    assert invocation["result"].startswith("Found 2 results:\n\n[1] Score: 0.")
    assert "Source: docs/returns.md" in invocation["result"]


def test_the_documents_count_in_the_budget_and_the_report_says_so(folder):
    folder.write_agent(**search_agent(folder))

    ran = run(folder, "--max-calls", "2", "-o", "report.json")

    assert ran.code == 6, ran.stdout + ran.stderr
    assert "the budget of 2 calls is used up (2 calls spent)" in ran.stderr
    [note] = json.loads((folder.path / "report.json").read_text())["notes"]
    said = r"before the first case, the tools took 2 requests and \d+ tokens for documents"
    assert re.match(said, note)


def test_only_what_changed_is_embedded_again(folder):
    folder.write_agent(**search_agent(folder))
    folder.write("docs/old.txt", "Closed on Sundays.")
    run(folder)
    first = embedded(folder.server)
    folder.write("docs/shipping.md", "We ship by train.")
    (folder.path / "docs/old.txt").unlink()

    again = run(folder)

    assert "Ingested 1 of 2 documents for kb, 1 removed, 1 chunk, " in again.stderr
    later = embedded(folder.server)[len(first) :]
    assert [text for text in later if text in {RETURNS.strip(), "We ship by train."}] == [
        "We ship by train."
    ]
    [answer] = [one for one in folder.server.requests if one.tool_results][-1:]
    assert "Sundays" not in answer.tool_results[0]
    assert "Ingested" not in run(folder).stderr
    assert "Ingested 2 of 2 documents" in run(folder, "-f").stderr


def test_a_server_of_embeddings_that_is_down_is_one_clear_error(folder):
    folder.server.when(lambda one: one.wants_embeddings, status=401, content="wrong key")
    folder.write_agent(**search_agent(folder))

    ran = run(folder)

    assert ran.code == 3
    assert ran.stderr.count("tools.kb: HTTP 401: wrong key") == 1


def test_a_server_that_fails_in_the_middle_keeps_what_was_stored(folder):
    words = " ".join(f"word{number}." for number in range(2000))
    folder.write("docs/a_long.txt", words)
    folder.server.when(
        lambda one: any("Rotterdam" in text for text in one.embedded_texts),
        times=1,
        status=400,
        content="too much",
    )
    folder.write_agent(**search_agent(folder, chunk_size=10, chunk_overlap=0))

    failed = run(folder)
    again = run(folder)

    assert failed.code == 3
    assert "tools.kb: HTTP 400: too much" in failed.stderr
    assert "Ingested 1 of 3 documents for kb" in failed.stderr
    assert again.code == 0, again.stderr
    assert "Ingested 2 of 3 documents for kb" in again.stderr


@pytest.mark.parametrize(
    ("files", "changes", "message"),
    [
        ({}, {"source": "doc"}, "tools[0].source: doc: file not found"),
        ({"empty/x.png": b"."}, {"source": "empty"}, "tools[0].source: empty: has no file that"),
        ({"docs/bad.pdf": b"no"}, {}, "tools.kb.source: docs/bad.pdf: is not a PDF file"),
        ({"docs/bad.txt": b"\xff"}, {}, "tools.kb.source: docs/bad.txt: is not UTF-8 text"),
        ({}, {"source": "gs://docs"}, "tools[0].source: gs://docs: gs:// is not supported"),
        ({}, {"source": "s3:///docs"}, "tools[0].source: s3:///docs: has no bucket; write s3://"),
        (
            {},
            {"source": "../cache"},
            "tools[0].source: ../cache: lies outside of the agent's folder",
        ),
        ({}, {"database": "main"}, "tools[0].database: unknown vector store 'main'"),
        ({}, {"chunk_overlap": 600}, "'chunk_overlap' is 600; it must be less than 'chunk_size'"),
        ({}, {"vector_field": "text"}, "'id_field' is missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_source_that_cannot_be_used_is_an_error_that_names_the_tool(
    folder, files, changes, message
):
    (folder.path.parent / "cache").mkdir()
    for name, content in files.items():
        folder.write(name, content)
    folder.write_agent(**search_agent(folder, **changes))

    ran = run(folder)

    assert ran.code == 2, ran.stdout
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


def test_records_of_a_csv_file_are_found_with_their_fields(folder):
    folder.write("faq.csv", "sku;question;answer\nA-1;How long is the warranty?;Two years\n")
    records = {
        "source": "faq.csv",
        "id_field": "sku",
        "vector_field": ["question", "answer"],
        "meta_fields": ["sku"],
        "field_separator": " | ",
    }
    cases = [case("asks", "warranty", contains="How long is the warranty? | Two years\nsku: A-1")]
    folder.write_agent(**search_agent(folder, **records) | {"test_cases": cases})

    ran = run(folder)

    assert ran.code == 0, ran.stdout + ran.stderr


def test_a_database_of_the_project_is_used_by_its_name(folder):
    folder.write("config.yaml", "vectorstores: {here: {provider: sqlite, path: kb.sqlite}}")
    folder.write_agent(**search_agent(folder, database="here"))

    ran = run(folder)

    assert ran.code == 0, ran.stdout + ran.stderr
    assert (folder.path / "kb.sqlite").stat().st_size > 0


def rerank_agent(folder, **overrides) -> dict:
    folder.write("docs/terms.md", "# Terms\n\n## Shoes\n\nThirty days.\n\n## Hats\n\nNo way.\n")
    tool = {"type": "hierarchical_document", "source": "docs/terms.md", "enable_reranking": True}
    quiet = {"contextual_embeddings": False, "top_k": 1}
    agent = search_agent(folder, **tool, **quiet, **overrides)
    return agent | {"test_cases": [case("asks", "shoes", contains="No way.")]}


def test_a_model_chooses_the_best_of_what_was_found(folder):
    def score(request: Request) -> str:
        passages = request.prompt.split("<passage")[1:]
        return json.dumps({"scores": [8 if "No way" in one else 3 for one in passages]})

    folder.server.when(lambda one: "rank the results" in one.system, score)
    folder.write_agent(**rerank_agent(folder))

    ran = run(folder, "--output", "report.json")

    assert ran.code == 0, ran.stdout + ran.stderr
    [result] = json.loads((folder.path / "report.json").read_text())["results"]
    [invocation] = result["tool_invocations"]
    assert invocation["result"].startswith("Found 1 result:\n\n[1] Score: 0.80 | ")
    assert invocation["model_cost"]["calls"] == 2  # the query's vector, and the scores


def test_a_reranker_that_does_not_score_is_an_error_of_the_tool(folder):
    folder.server.when(lambda one: "rank the results" in one.system, '{"scores": [11]}')
    folder.write_agent(**rerank_agent(folder))

    ran = run(folder, "--output", "report.json")

    assert ran.code == 1, ran.stdout + ran.stderr
    [result] = json.loads((folder.path / "report.json").read_text())["results"]
    [invocation] = result["tool_invocations"]
    assert "did not answer as asked, twice: " in invocation["error"]
    assert invocation["model_cost"]["calls"] == 3
    asked = [one for one in folder.server.requests if "rank the results" in one.system]
    assert "That cannot be used: " in asked[1].prompt


def test_a_structured_document_is_found_by_meaning_keywords_and_exact_matches(folder):
    folder.server.when(
        lambda one: "search engine" in one.system, lambda one: f"Context {one.number}."
    )
    folder.write(
        "docs/terms.md",
        '# Terms\n\n## 1 Definitions\n\n"Goods" means all things that we sell.\n\n'
        "## 2 Returns\n\nGoods may be returned as Section 3 says.\n\n"
        "## 3 Period\n\nThe period is thirty days.\n",
    )
    cases = [case("asks", "returned goods", contains='Definition: "Goods" means all things')]
    agent = search_agent(folder, type="hierarchical_document", source="docs/terms.md", top_k=2)
    folder.write_agent(**agent | {"test_cases": cases})

    first, second = run(folder, "--output", "report.json"), run(folder)

    assert first.code == second.code == 0, first.stdout + first.stderr
    assert "3 chunks, 5 requests" in first.stderr  # two for vectors, three for contexts
    contexts = [one for one in folder.server.requests if "search engine" in one.system]
    assert len(contexts) == 3  # the second run has them in its store
    [result] = json.loads((folder.path / "report.json").read_text())["results"]
    best, _ = result["tool_invocations"][0]["passages"]
    assert best.splitlines()[-1] == "See also: Section 3 is Terms > 3 Period"
    assert any("Terms > 2 Returns\nContext" in text for text in embedded(folder.server))


def test_a_chunk_of_a_pdf_file_knows_its_page(folder):
    pages = ([(12, "We sell tents.")], [(12, "The warranty is two years.")])
    folder.write("docs/terms.pdf", pdf(*pages))
    cases = [case("asks", "warranty years", contains="Source: docs/terms.pdf, page 2")]
    folder.write_agent(**search_agent(folder, source="docs/terms.pdf") | {"test_cases": cases})

    ran = run(folder)

    assert ran.code == 0, ran.stdout + ran.stderr


def test_a_remote_file_is_searched_if_its_address_is_allowed(folder):
    folder.server.when(lambda one: one.path == "/terms.md", content=RETURNS)
    url = f"{folder.server.root}/terms.md"
    folder.write_agent(**search_agent(folder, source=url))
    refused = run(folder)
    host = folder.server.root.removeprefix("http://")
    allowed = {"execution": {"allowed_hosts": [host]}}
    folder.write_agent(**search_agent(folder, source=url) | allowed)

    ran = run(folder)

    assert refused.code == 2
    assert f"tools.kb.source: {url}: " in refused.stderr
    assert ran.code == 0, ran.stdout + ran.stderr


def test_two_processes_that_start_together_embed_each_document_once(folder):
    folder.write_agent(**search_agent(folder))
    cache = {"HOLODECK_CACHE_DIR": str(folder.path.parent / "cache")}
    with ExitStack() as running:
        with folder.server.held():
            commands = [start_cli("test", cwd=folder.path, env=cache) for _ in range(2)]
            started = [running.enter_context(one) for one in commands]
            folder.server.wait_for_requests(2)
        ran = [one.finish() for one in started]

    assert [one.code for one in ran] == [0, 0], ran
    assert embedded(folder.server).count(RETURNS.strip()) == 1
    assert sum("Ingested 2 of 2 documents" in one.stderr for one in ran) == 1


@pytest.mark.model
def test_an_agent_of_a_provider_without_embeddings_searches_with_the_embedded_model(folder):
    folder.write_agent(**search_agent(folder, top_k=1), embedding_provider={"provider": "local"})

    ran = run(folder, env={"HOLODECK_CACHE_DIR": None})

    assert ran.code == 0, ran.stdout + ran.stderr
    assert embedded(folder.server) == []


OWN_STORE = """
from holodeck.lib.knowledge.stores.base import Hit, StoredText


class Lists:
    def __init__(self, collection, *, most=1000):
        self.collection, self.most = collection, most
        self.chunks, self.fingerprints = {}, {}

    async def open(self, dimensions, *, empty=False): ...

    async def replace(self, document, chunks):
        if len(chunks) > self.most:
            raise ValueError(f"{document} has more than {self.most} chunks")
        await self.delete(document)
        self.chunks[document] = list(chunks)

    async def delete(self, document):
        self.chunks.pop(document, None)
        self.fingerprints.pop(document, None)

    async def search(self, embedding, top_k):
        hits = [
            Hit(chunk.id, document, chunk.text, cosine(embedding, chunk.embedding), chunk.metadata)
            for document, chunks in self.chunks.items()
            for chunk in chunks
        ]
        return sorted(hits, key=lambda hit: -hit.score)[:top_k]

    async def texts(self):
        return [
            StoredText(chunk.id, document, chunk.text, chunk.metadata)
            for document, chunks in sorted(self.chunks.items())
            for chunk in chunks
        ]

    async def manifest(self):
        return dict(self.fingerprints)

    async def set_manifest(self, document, fingerprint):
        self.fingerprints.pop(document, None)
        if fingerprint is not None:
            self.fingerprints[document] = fingerprint

    async def close(self): ...


def cosine(one, other):
    lengths = sum(x * x for x in one) * sum(y * y for y in other)
    return max(0.0, sum(x * y for x, y in zip(one, other)) / lengths**0.5) if lengths else 0.0
"""


def test_an_agent_searches_in_a_store_of_the_user(folder):
    folder.write("own_store.py", OWN_STORE)
    database = {"provider": "own_store:Lists", "options": {"most": 1}}
    agent = search_agent(folder, database=database, top_k=1)
    folder.write_agent(**agent)

    ran = run(folder)
    folder.write("docs/returns.md", RETURNS + "words " * 3000)
    refused = run(folder)

    assert ran.code == 0, ran.stdout + ran.stderr
    assert refused.code == 3
    assert "docs/returns.md has more than 1 chunks" in refused.stderr
