"""How fast the embedded vector store is: storing 10,000 chunks, and searching them.

    python benchmarks/vector_store.py [--chunks 10000] [--searches 50] [--check]

Embeddings are random, as their content does not matter to an exact search. The first search reads
them from the file. CPU time is that of one thread, which other processes cannot change much.
`--check` exits with 1 if the median search takes more than 20 ms.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from holodeck.lib.knowledge.stores.base import Chunk
from holodeck.lib.knowledge.stores.collection import open_store

GOAL_MS = 20
DIMENSIONS = (384, 768, 1536)
PER_DOCUMENT = 100
TOP_K = 5


async def measure(dimensions: int, chunks: int, searches: int, folder: Path) -> float:
    """Print a row of the table; return the median search in milliseconds of CPU."""
    random = np.random.default_rng(0)
    store = open_store(None, f"benchmark {dimensions}", folder)
    await store.open(dimensions)
    started = time.perf_counter()
    for first in range(0, chunks, PER_DOCUMENT):
        embeddings = random.normal(size=(PER_DOCUMENT, dimensions)).tolist()
        name = f"{first}.md"
        rows = [Chunk(str(n), name, "text " * 100, one, {}) for n, one in enumerate(embeddings)]
        await store.replace(name, rows)
    stored_s = time.perf_counter() - started

    wall, cpu = list[float](), list[float]()
    for query in random.normal(size=(searches + 1, dimensions)).tolist():
        started, used = time.perf_counter(), time.process_time()
        await store.search(query, TOP_K)
        wall.append(1000 * (time.perf_counter() - started))
        cpu.append(1000 * (time.process_time() - used))
    await store.close()
    first, median, of_cpu = wall[0], statistics.median(wall[1:]), statistics.median(cpu[1:])
    speed = chunks / stored_s
    print(f"| {dimensions:,} | {speed:,.0f} | {first:,.0f} | {median:.1f} | {of_cpu:.1f} |")
    return of_cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--searches", type=int, default=50)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()

    print("| Dimensions | Chunks stored per s | First search, ms | Search, ms | of CPU, ms |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        medians = [
            asyncio.run(measure(one, given.chunks, given.searches, Path(folder)))
            for one in DIMENSIONS
        ]
    return int(given.check and max(medians) > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main())
