"""Vector stores of config.yaml, which tools name in `database`."""

import pytest
from pydantic import ValidationError

from holodeck.config.loader import ConfigLoader
from holodeck.config.providers import merge_shared, with_vector_stores
from holodeck.config.yaml.source import Locations, Source
from holodeck.errors import ConfigError
from holodeck.models.tools.knowledge import DatabaseConfig, VectorStoreSettings
from support.cli import run_cli

TOOL = "name: a\ntools:\n- {type: vectorstore, name: kb, source: docs, database: DATABASE}\n"


def config_of(folder, text):
    folder.write("config.yaml", text)
    return ConfigLoader().load_project_config(folder.path)


def resolve(config, database):
    source = Source.of(TOOL.replace("DATABASE", database), "agent.yaml")
    problems = []
    agent = with_vector_stores(source.data(), config, Locations(source), problems)
    return agent["tools"][0]["database"], [str(one) for one in problems]


def test_the_name_of_a_store_stands_for_its_settings(folder):
    config = config_of(
        folder,
        "vectorstores: {kb: {provider: postgresql, options: {db_schema: x},"
        " connection_string: 'postgresql://me:secret-word@db/x'}}\n",
    )

    store, problems = resolve(config, "kb")

    assert problems == []
    assert (store.provider.value, store.db_schema, store.options) == ("postgres", "x", None)
    assert "secret-word" not in repr(store)


KNOWLEDGE = "vectorstores: {knowledge: {provider: in-memory}}\n"
WHAT_TO_DO = {
    (KNOWLEDGE, "knowlege"): "; did you mean 'knowledge'?",
    (KNOWLEDGE, "x"): "; config.yaml has knowledge",
    ("", "qdrant"): "; a product is written as a mapping: 'database: {provider: qdrant}'",
    ("", "x"): "; name it under 'vectorstores' in a config.yaml beside the agent.yaml",
}


@pytest.mark.parametrize(("config", "name"), WHAT_TO_DO)
def test_an_unknown_name_is_an_error_with_its_place(folder, config, name):
    problem = f"agent.yaml:3:57: tools[0].database: unknown vector store '{name}'"

    resolved = resolve(config_of(folder, config), name)

    assert resolved == (name, [problem + WHAT_TO_DO[config, name]])


def write_agent(folder, provider):
    folder.write("docs/a.md", "Thirty days.\n")
    folder.write(
        "agent.yaml",
        "name: a\nmodel: {provider: openai, name: x, api_key: y}\ninstructions: {inline: z}\n"
        "tools: [{type: vectorstore, name: kb, description: x, source: docs,"
        f" database: {{provider: '{provider}'}}}}]\ntest_cases: [{{input: hello}}]\n",
    )


@pytest.mark.parametrize("product", ["redis-json", "faiss"])
def test_a_product_that_is_not_used_any_more_is_a_warning_with_what_is_used(folder, product):
    write_agent(folder, product)

    ran = run_cli("validate", "agent.yaml", cwd=folder.path)

    used = {"redis-json": "a file in the cache folder", "faiss": "the store in memory"}[product]
    assert ran.code == 0
    assert f"'{product.partition('-')[0]}' is not used any more, but" in ran.stdout + ran.stderr
    assert used in ran.stdout + ran.stderr


def test_a_class_that_is_nowhere_is_an_error_of_validate(folder):
    write_agent(folder, "nowhere:Store")

    ran = run_cli("validate", "agent.yaml", cwd=folder.path)

    assert ran.code == 2
    assert "tools[0].database.provider: module not found: there is no nowhere.py" in (
        ran.stdout + ran.stderr
    )


def test_options_are_arguments_of_a_class_and_keys_of_a_product():
    values = {"provider": "own:Store", "options": {"region": "x"}, "timeout": 2}

    assert VectorStoreSettings.model_validate(values).options == {"region": "x"}
    with pytest.raises(ValidationError, match="'options' is no key of sqlite"):
        DatabaseConfig.model_validate({"provider": "sqlite", "options": {"path": "x"}})


def test_the_name_that_other_files_give_a_key_is_known():
    values = {"provider": "azure-ai-search", "search_endpoint": "https://x", "api_key": "y"}

    assert DatabaseConfig.model_validate(values).url == "https://x"


def test_a_mapping_and_no_database_stay_as_they_are(folder):
    assert resolve(None, "{provider: in-memory}") == ({"provider": "in-memory"}, [])
    assert resolve(None, "null") == (None, [])


def test_the_store_of_the_project_wins_over_the_users(folder):
    project = config_of(folder, "vectorstores: {kb: {provider: in-memory}}\n")
    users = folder.home / ".holodeck" / "config.yaml"
    users.parent.mkdir(parents=True)
    users.write_text("vectorstores: {kb: {provider: sqlite}, mine: {provider: sqlite}}\n")

    shared = merge_shared(ConfigLoader().load_global_config(), project)

    assert {name: one.provider.value for name, one in shared.vectorstores.items()} == {
        "kb": "in-memory",
        "mine": "sqlite",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{provider: qdrnt}", "provider: found 'qdrnt'; did you mean 'qdrant'?"),
        ("{provider: in-memory, uri: x}", "uri: unknown key; did you mean 'url'?"),
        ("{provider: sqlite, url: x}", "'url' is no key of sqlite; known: provider, path, timeout"),
        ("{provider: sql-server}", "the address of sql-server is missing; write, for example,"),
        ("{provider: sql-server, connection_string: ''}", "connection_string"),
        ("{provider: 'own store:x'}", "provider: "),
        ("{provider: own:Store, cloud: aws}", "'cloud' is no key of own:Store"),
        ("{provider: qdrant, url: a, path: b}", "'url' and 'path' are both set; keep one of them"),
        ("{provider: pinecone}", "write, for example, 'api_key: ${PINECONE_API_KEY}'"),
        ("{provider: azure-ai-search, api_key: x}", "url: https://NAME.search.windows.net"),
        (
            "{provider: azure-ai-search, connection_string: 'https://x'}",
            "write, for example, 'api_key: ${AZURE_AI_SEARCH_API_KEY}'",
        ),
        ("{provider: azure-ai-search, url: a, endpoint: b}", "endpoint: unknown key"),
        ("{provider: sqlite, timeout: 0}", "timeout: found 0; expected more than 0"),
        ("{provider: sqlite, options: {db_schema: x}}", "'db_schema' is no key of sqlite"),
    ],
)
def test_wrong_settings_of_a_store_are_errors(folder, settings, message):
    with pytest.raises(ConfigError) as raised:
        config_of(folder, f"vectorstores:\n  kb: {settings}\n")

    assert "config.yaml:2:" in str(raised.value)
    assert message in str(raised.value)
