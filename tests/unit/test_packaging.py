"""What is installed: the facts of pyproject.toml and the console script."""

import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import holodeck
from holodeck.errors import DISTRIBUTION, MissingExtra
from holodeck.lib.knowledge.objects import EXTRAS as BUCKET_EXTRAS
from holodeck.lib.knowledge.stores.semantic_kernel_store import CONNECTORS as STORE_CONNECTORS

ROOT = Path(__file__).parents[2]
CONTENT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BUILD = CONTENT["project"], CONTENT["tool"]["hatch"]
STORES = {"azure-blob", "chroma", "opensearch", "postgres", "qdrant", "s3"}
EXTRAS = {"a2a", "deepeval", "azure", "local", "files", "pandas", "all", "dev", "nlp", *STORES}
FEATURES = EXTRAS - {"all", "dev"}
CONNECTORS = {"azure-ai-search", "azure-cosmos", "pinecone", "sql-server", "weaviate"}
"""Extras with the clients of Semantic Kernel's connectors, whose servers run nowhere here."""
ALONE = {"litellm", "ray", *CONNECTORS}
"""Extras that clash with the versions of others, or are large."""


def test_every_documented_extra_exists():
    assert set(PROJECT["optional-dependencies"]) >= EXTRAS | ALONE


TELEMETRY = {"azure-monitor", "otlp-grpc"}


def test_the_extra_all_holds_every_feature():
    (everything,) = PROJECT["optional-dependencies"]["all"]
    name, _, names = everything.rstrip("]").partition("[")

    assert name == PROJECT["name"]
    assert set(names.split(",")) == FEATURES | TELEMETRY


def test_every_extra_that_an_error_tells_to_install_exists():
    told = {
        line.partition('MissingExtra("')[2].partition('"')[0]
        for path in (ROOT / "src").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if 'MissingExtra("' in line
    }

    told |= {connector.extra for connector in STORE_CONNECTORS.values()}
    told |= set(BUCKET_EXTRAS.values())

    assert told
    assert told <= FEATURES | ALONE | TELEMETRY


def test_a_missing_library_is_never_installed_over_by_the_other_holodeck_of_the_index():
    hint = str(MissingExtra("deepeval", "metric geval"))

    assert PROJECT["name"] == DISTRIBUTION != "holodeck"
    assert hint.endswith(f"install it with: {ROOT / 'scripts/install'} deepeval")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "python -m pip install 'holodeck-harness[nlp]'"),
        (
            {"url": "file:///a%20b/src", "dir_info": {"editable": True}},
            "python -m pip install --editable '/a b/src[nlp]'",
        ),
        (
            {"url": "file:///src", "dir_info": {}},
            "python -m pip install 'holodeck-harness[nlp] @ file:///src'",
        ),
        (
            {"url": "https://host/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "python -m pip install 'holodeck-harness[nlp] @ git+https://host/x.git'",
        ),
        (
            {"url": "https://host/x.whl", "archive_info": {}},
            "python -m pip install 'holodeck-harness[nlp] @ https://host/x.whl'",
        ),
    ],
    ids=["index", "editable elsewhere", "folder", "git", "wheel"],
)
def test_a_missing_library_is_installed_the_way_holodeck_was(
    tmp_path, monkeypatch, origin, command
):
    installed = tmp_path / f"{DISTRIBUTION.replace('-', '_')}-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)

    assert str(MissingExtra("nlp", "metric bleu")).endswith(f": {command}")


@pytest.mark.parametrize(
    "library",
    ["semantic-kernel", "click", "pydantic", "pyyaml", "opentelemetry-api",
     "opentelemetry-sdk"],
)  # fmt: skip
def test_the_core_needs_what_is_documented(library):
    assert any(one.startswith(library) for one in PROJECT["dependencies"])


def test_the_version_is_written_in_one_place():
    home = ROOT / BUILD["version"]["path"]

    assert "version" in PROJECT["dynamic"]
    assert home == Path(holodeck.__file__)
    assert f'__version__ = "{holodeck.__version__}"' in home.read_text(encoding="utf-8")
    assert metadata.version(DISTRIBUTION) == holodeck.__version__


def test_the_console_script_is_the_command():
    (script,) = metadata.entry_points(group="console_scripts", name="holodeck")

    assert script.load() is sys.modules["holodeck.cli.main"].main


def test_python_versions_that_are_promised_include_this_one():
    low = PROJECT["requires-python"].removeprefix(">=")

    assert tuple(map(int, low.split("."))) == (3, 11)
    assert sys.version_info >= (3, 11)


def test_the_wheel_holds_the_whole_package_with_its_types_marker_and_its_licence():
    (package,) = BUILD["build"]["targets"]["wheel"]["packages"]

    assert ROOT / package == Path(holodeck.__file__).parent
    assert (ROOT / package / "py.typed").is_file()
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])


def test_every_locked_package_has_hashes():
    lock = (ROOT / "requirements.lock").read_text()
    without = [
        block.partition(" ")[0]
        for block in re.split(r"\n(?=[a-z0-9])", lock)
        if "--hash=sha256:" not in block
    ]

    assert without == []
