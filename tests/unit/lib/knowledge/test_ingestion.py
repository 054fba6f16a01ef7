"""Two processes that ingest the same documents: the second one waits, but not for ever."""

import pytest

from holodeck.errors import VectorStoreError
from holodeck.lib.knowledge import ingestion
from holodeck.lib.support.files import claim, release


async def test_another_process_that_ingests_for_ever_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(ingestion, "LOCK_S", 0.1)
    lock = tmp_path / "kb.lock"
    handle = claim(lock)
    try:
        with pytest.raises(VectorStoreError, match=r"tools\.kb: another process has ingested"):
            async with ingestion.exclusive_ingestion(lock, "kb"):
                pass
    finally:
        release(lock, handle)
