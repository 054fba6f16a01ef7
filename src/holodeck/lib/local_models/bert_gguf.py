"""Conversion of BERT weights (safetensors and a vocabulary) to GGUF, which llama.cpp reads.

Only names and headers change, not the numbers. The same weights always give the same file, so that
the catalog can contain its sha256.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

_ALIGNMENT = 32
_VERSION = 3
_FLOAT32 = 0
_MEAN_POOLING = 1
_NORMAL_TOKEN, _CONTROL_TOKEN = 1, 3
_SPACE = "\u2581"
"""The first character of pieces at the start of a word."""

_OUTER = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
_IN_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}

Value = bool | int | float | str | Sequence[str] | Sequence[int]


@dataclass(frozen=True)
class Tensor:
    """An array of numbers in the safetensors file."""

    name: str
    """The name that llama.cpp uses."""
    shape: tuple[int, ...]
    start: int
    size: int
    """Bytes."""


def convert_to_gguf(weights: IO[bytes], vocabulary: str, heads: int) -> Iterator[bytes]:
    """Yield the GGUF file in chunks; `weights` is read once, from start to end.

    `vocabulary` has a word piece per line; `heads` is the number of attention heads per layer.
    """
    (length,) = struct.unpack("<Q", weights.read(8))
    tensors = _tensors(json.loads(weights.read(length)))
    facts = {**_shape(tensors, heads), **_tokens(vocabulary.split("\n")[:-1])}
    head = b"".join(
        (
            struct.pack("<4sIQQ", b"GGUF", _VERSION, len(tensors), len(facts)),
            *(_text(key) + _value(value) for key, value in facts.items()),
            *_entries(tensors),
        )
    )
    yield head + _padding(len(head))
    position = 0
    for tensor in tensors:
        weights.read(tensor.start - position)  # tensors that llama.cpp does not need
        yield weights.read(tensor.size) + _padding(tensor.size)
        position = tensor.start + tensor.size


def _tensors(header: dict[str, dict[str, list[int]]]) -> list[Tensor]:
    """Return the tensors that llama.cpp needs, in the order of the file."""
    tensors = []
    for source_name, one in header.items():
        name = _name(source_name)
        if name is not None:
            start, end = one["data_offsets"]
            tensors.append(Tensor(name, tuple(one["shape"]), start, end - start))
    return sorted(tensors, key=lambda tensor: tensor.start)


def _name(source_name: str) -> str | None:
    """Return llama.cpp's name of a tensor; None for one that it does not need."""
    stem, _, kind = source_name.rpartition(".")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.{kind}"
    layer, _, inner = stem.removeprefix("encoder.layer.").partition(".")
    return f"blk.{layer}.{_IN_LAYER[inner]}.{kind}" if inner in _IN_LAYER else None


def _shape(tensors: Sequence[Tensor], heads: int) -> dict[str, Value]:
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    context, width = shapes["position_embd.weight"]
    return {
        "general.architecture": "bert",
        "general.alignment": _ALIGNMENT,
        "general.file_type": _FLOAT32,
        "bert.block_count": sum(name.endswith(".attn_q.weight") for name in shapes),
        "bert.context_length": context,
        "bert.embedding_length": width,
        "bert.feed_forward_length": shapes["blk.0.ffn_up.weight"][0],
        "bert.attention.head_count": heads,
        "bert.attention.layer_norm_epsilon": 1e-12,
        "bert.attention.causal": False,
        "bert.pooling_type": _MEAN_POOLING,
    }


def _tokens(pieces: Sequence[str]) -> dict[str, Value]:
    at = {name: pieces.index(f"[{name}]") for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    control = set(at.values())
    kinds = [_CONTROL_TOKEN if n in control else _NORMAL_TOKEN for n in range(len(pieces))]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": [
            piece if n in control else _spaced(piece) for n, piece in enumerate(pieces)
        ],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.bos_token_id": at["CLS"],
        "tokenizer.ggml.eos_token_id": at["SEP"],
        "tokenizer.ggml.unknown_token_id": at["UNK"],
        "tokenizer.ggml.seperator_token_id": at["SEP"],  # spelled so in the format
        "tokenizer.ggml.padding_token_id": at["PAD"],
        "tokenizer.ggml.cls_token_id": at["CLS"],
        "tokenizer.ggml.mask_token_id": at["MASK"],
    }


def _spaced(piece: str) -> str:
    return piece[2:] if piece.startswith("##") else _SPACE + piece


def _entries(tensors: Sequence[Tensor]) -> Iterator[bytes]:
    """Yield the header of each tensor: name, shape with the last dimension first, offset."""
    offset = 0
    for tensor in tensors:
        count = len(tensor.shape)
        shape = struct.pack(f"<I{count}Q", count, *reversed(tensor.shape))
        yield _text(tensor.name) + shape + struct.pack("<IQ", _FLOAT32, offset)
        offset += tensor.size + len(_padding(tensor.size))


def _padding(size: int) -> bytes:
    return bytes(-size % _ALIGNMENT)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    """Return a value, preceded by the format's number of its type."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
    return struct.pack("<I", 9) + _array(value)


def _array(values: Sequence[str] | Sequence[int]) -> bytes:
    texts = [one for one in values if isinstance(one, str)]
    if texts:
        return struct.pack("<IQ", 8, len(texts)) + b"".join(map(_text, texts))
    return struct.pack(f"<IQ{len(values)}i", 5, len(values), *values)
