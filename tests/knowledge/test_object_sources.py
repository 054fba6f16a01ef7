"""Documents in S3 and in Azure Blob Storage: what is read, what is downloaded again, and faults."""

import sys
from collections.abc import Iterator

import pytest

from fakes import AgentFolder, FakeOpenAI, Reply, case
from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.knowledge.objects import fetch_objects
from support import buckets
from support.buckets import ACCOUNT_KEY, KEY_ID, SECRET, AzureServer, S3Server
from support.store_servers import free_port

DOCUMENTS = {
    "docs/a b+ü.md": b"Thirty days.",
    "docs/deep/er/b.txt": b"Rotterdam.",
    "docs/c.md": b"",
    "docs/image.png": b"no text",
    "docs/.hidden/d.md": b"hidden",
    "docs2/e.md": b"of another folder",
    "docs/../../escaped.md": b"a key is no path",
}
IN_DOCS = ["docs/a b+ü.md", "docs/c.md", "docs/deep/er/b.txt"]


def s3_env(server: S3Server, **more: str) -> dict[str, str]:
    access = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    return {**access, "AWS_REGION": server.region, "AWS_ENDPOINT_URL": server.url, **more}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    server = S3Server({"terms": dict(DOCUMENTS)})
    with buckets.serving(server):
        yield server


@pytest.fixture(scope="module")
def azure() -> Iterator[AzureServer]:
    server = AzureServer({"terms": dict(DOCUMENTS)})
    with buckets.serving(server):
        yield server


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with buckets.azurite() as connection:
        from azure.storage.blob import ContainerClient

        with ContainerClient.from_connection_string(connection, "terms") as container:
            container.create_container()
            for name, data in DOCUMENTS.items():
                if ".." not in name:
                    container.upload_blob(name, data)
        yield connection


@pytest.fixture
def fetch(tmp_path):
    """Return what a source has, as the names of its objects and their contents."""

    def run(source: str, env: dict[str, str], limit: float = 30) -> dict[str, bytes]:
        found = fetch_objects(source, (".md", ".txt"), tmp_path / "objects", env, limit)
        return {one.url: one.file.read_bytes() for one in found}

    return run


def test_a_folder_in_s3_is_read_with_all_folders_in_it(s3, fetch, tmp_path):
    found = fetch("s3://terms/docs", s3_env(s3))

    assert found == {f"s3://terms/{key}": DOCUMENTS[key] for key in IN_DOCS}
    assert not (tmp_path / "escaped.md").exists()
    assert {one.parent for one in tmp_path.rglob("*.md")} == {tmp_path / "objects"}


def test_a_container_of_azure_is_read(azure, fetch):
    env = {"AZURE_STORAGE_CONNECTION_STRING": azure.connection_string}

    assert fetch("az://terms/docs/", env) == {
        f"az://terms/{key}": DOCUMENTS[key] for key in IN_DOCS
    }


def test_a_container_of_azures_emulator_is_read(emulator, fetch):
    env = {"AZURE_STORAGE_CONNECTION_STRING": emulator}
    expected = {f"az://terms/{key}": DOCUMENTS[key] for key in IN_DOCS}

    assert fetch("az://terms/docs/", env) == expected
    with pytest.raises(ConfigError, match=r"has no file that ends"):
        fetch("az://nothing/docs/", env)


def test_one_object_is_read(s3, fetch):
    assert fetch("s3://terms/docs2/e.md", s3_env(s3)) == {
        "s3://terms/docs2/e.md": b"of another folder"
    }


def test_only_what_changed_is_downloaded_again_and_what_vanished_is_removed(s3, fetch, tmp_path):
    s3.objects["changing"] = {"a.md": b"one", "b.md": b"two", "c.md": b"three"}
    fetch("s3://changing", s3_env(s3))
    s3.reads.clear()
    s3.objects["changing"] = {"a.md": b"one", "b.md": b"four"}

    assert fetch("s3://changing/", s3_env(s3)) == {
        "s3://changing/a.md": b"one",
        "s3://changing/b.md": b"four",
    }
    assert s3.reads == ["b.md"]
    assert len(list((tmp_path / "objects").iterdir())) == 2


def test_credentials_and_region_may_be_in_the_files_of_awss_tools(s3, fetch, tmp_path, monkeypatch):
    folder = tmp_path / ".aws"
    folder.mkdir()
    keys = f"aws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    (folder / "credentials").write_text(f"[work]\n{keys}")
    (folder / "config").write_text(f"[profile work]\nregion = {s3.region}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    env = {"AWS_PROFILE": "work", "AWS_ENDPOINT_URL_S3": s3.url}

    assert fetch("s3://terms/docs2", env) == {"s3://terms/docs2/e.md": b"of another folder"}


NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
WRONG_S3 = [
    ("s3://terms/docs", NO_KEYS, "NoCredentialsError: .*; check AWS_REGION, and AWS_ACCESS_KEY_ID"),
    ("s3://terms/docs", {"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, "SignatureDoesNotMatch"),
    ("s3://terms/docs", {"AWS_REGION": "us-east-1"}, "the region is wrong.*check AWS_REGION"),
    ("s3://terms/docs", {"AWS_ENDPOINT_URL": "http://127.0.0.1:PORT"}, "Could not connect"),
    ("s3://nothing/docs", {}, "not found .NoSuchBucket: .*; check the names of bucket"),
    ("s3://terms/empty", {}, r"s3://terms/empty: has no file that ends with \.md, \.txt"),
    ("s3://terms/none.md", {}, "s3://terms: not found .*; check the names"),
    ("s3:///docs", {}, "has no bucket; write s3://BUCKET/FOLDER/"),
    ("s3://terms/**/*.md", {}, "patterns work for paths only"),
]


@pytest.mark.parametrize(("source", "changes", "message"), WRONG_S3)
def test_a_bucket_that_cannot_be_read_is_an_error_without_its_secret(
    s3, fetch, tmp_path, monkeypatch, source, changes, message
):
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # it is asked for credentials
    env = s3_env(s3)
    env |= {name: value.replace("PORT", str(free_port())) for name, value in changes.items()}

    with pytest.raises(ConfigError, match=message) as raised:
        fetch(source, env)

    assert SECRET not in str(raised.value)
    assert "wrong-secret" not in str(raised.value)


def test_what_is_too_large_is_not_downloaded(s3, fetch, monkeypatch):
    monkeypatch.setattr("holodeck.lib.knowledge.objects.MOST_BYTES", 20)
    s3.reads.clear()

    with pytest.raises(ConfigError, match="download"):
        fetch("s3://terms/docs", s3_env(s3))

    assert s3.reads == []


@pytest.mark.parametrize(
    ("source", "connection", "message"),
    [
        ("az://terms/docs", "", "AZURE_STORAGE_CONNECTION_STRING: is not set; az:// needs"),
        ("az://terms/docs", "no string", "malformed.*; check AZURE_STORAGE_CONNECTION_STRING"),
        ("az://nothing/docs", None, r"has no file that ends with \.md, \.txt"),
        ("az://nothing/docs/a.md", None, "az://nothing: not found .*; check the names of bucket"),
        ("az://terms/docs", buckets.connection_string(1), "Cannot connect to host 127.0.0.1:1"),
    ],
)
def test_a_container_that_cannot_be_read_is_an_error(azure, fetch, source, connection, message):
    given = azure.connection_string if connection is None else connection

    with pytest.raises(ConfigError, match=message) as raised:
        fetch(source, {"AZURE_STORAGE_CONNECTION_STRING": given}, limit=2)

    assert ACCOUNT_KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("source", "library", "extra"),
    [("s3://terms/docs", "s3fs", "s3"), ("az://terms/docs", "adlfs", "azure-blob")],
)
def test_a_missing_library_is_an_error_with_the_command(fetch, monkeypatch, source, library, extra):
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(MissingExtra, match=rf"{source.rpartition('/')[0]}: needs .*\b{extra}\W*$"):
        fetch(source, {})


def test_an_agent_answers_from_documents_in_a_bucket(s3, tmp_path):
    with FakeOpenAI() as model:
        model.when(lambda one: bool(one.tool_results), lambda one: Reply(one.tool_results[-1]))
        model.otherwise(lambda one: Reply(tool_calls=[("kb", {"query": one.prompt})]))
        folder = AgentFolder(tmp_path / "agent", model)
        tool = {"type": "vectorstore", "name": "kb", "description": "Terms."}
        folder.write_agent(
            tools=[{**tool, "source": "s3://terms/docs/"}],
            test_cases=[case("asks", "thirty", contains="Source: s3://terms/docs/a b+ü.md")],
            backend="chat",
        )
        env = s3_env(s3, HOLODECK_CACHE_DIR=str(tmp_path / "cache"))

        ran = folder.run("test", env=env)

    assert ran.code == 0, ran.stdout + ran.stderr
    assert "Ingested 3 of 3 documents for kb" in ran.stderr
