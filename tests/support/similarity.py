"""Comparing meanings without a model, and a model of embeddings that is tiny and knows nothing."""

import json
import random
import re
import struct
from collections.abc import Iterable

PIECES = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghij",
    *(f"##{c}" for c in "abcdefghij"),
)
WIDTH, CONTEXT, HEADS = 32, 512, 2


class SharedWords:
    """Two texts are as alike as their words: a fake of `EmbeddingModel`."""

    def similarity(self, one: str, other: str) -> float:
        mine, theirs = _words(one), _words(other)
        return len(mine & theirs) / len(mine | theirs) if mine and theirs else 0.0


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def vocabulary() -> str:
    return "".join(f"{piece}\n" for piece in PIECES)


def tiny_safetensors() -> bytes:
    """A BERT of one layer whose weights are the same noise each time, and one of no use."""
    noise = random.Random(5)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in _shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [noise.uniform(-0.5, 0.5) for _ in range(count)]
        raw = struct.pack(f"<{count}f", *values)
        place = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": place}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _shapes() -> Iterable[tuple[str, tuple[int, ...]]]:
    yield "pooler.dense.weight", (WIDTH, WIDTH)
    yield from _with_bias("embeddings.LayerNorm", (WIDTH,))
    yield "embeddings.word_embeddings.weight", (len(PIECES), WIDTH)
    yield "embeddings.position_embeddings.weight", (CONTEXT, WIDTH)
    yield "embeddings.token_type_embeddings.weight", (2, WIDTH)
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        yield from _with_bias(f"encoder.layer.0.attention.{part}", (WIDTH, WIDTH))
    yield from _with_bias("encoder.layer.0.attention.output.LayerNorm", (WIDTH,))
    yield from _with_bias("encoder.layer.0.intermediate.dense", (2 * WIDTH, WIDTH))
    yield from _with_bias("encoder.layer.0.output.dense", (WIDTH, 2 * WIDTH))
    yield from _with_bias("encoder.layer.0.output.LayerNorm", (WIDTH,))


def _with_bias(stem: str, shape: tuple[int, ...]) -> Iterable[tuple[str, tuple[int, ...]]]:
    yield f"{stem}.weight", shape
    yield f"{stem}.bias", shape[:1]
