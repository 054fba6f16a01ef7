"""Stores for the tests: which run here, and how each is started."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holodeck.lib.knowledge.stores.base import VectorStore
from holodeck.lib.knowledge.stores.collection import open_store
from holodeck.models.database import DatabaseConfig


class StoreFactory:
    """Builds stores of one configuration."""

    def __init__(self, folder: Path, **config: object) -> None:
        self.folder = folder
        self.config = DatabaseConfig.model_validate(config)
        self.is_exclusive = False

    def __call__(self, collection: str) -> VectorStore:
        return open_store(self.config, collection, self.folder / "cache", self.folder)


def embedded(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="sqlite")


def sqlite_file(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="sqlite", path="knowledge.sqlite")


def in_memory(folder: Path, _request: pytest.FixtureRequest) -> StoreFactory:
    return StoreFactory(folder, provider="in-memory")


STORES: dict[str, Callable[[Path, pytest.FixtureRequest], StoreFactory]] = {
    "embedded": embedded,
    "sqlite": sqlite_file,
    "in-memory": in_memory,
}
PERSISTENT = [name for name in STORES if name not in {"in-memory", "faiss"}]
