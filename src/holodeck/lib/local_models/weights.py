"""Files of weights: writing, checking and installing them, and converting BERT models to GGUF."""

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from holodeck.errors import MissingExtra, ModelStoreError

if TYPE_CHECKING:
    import gguf

_CHUNK = 1 << 20
_MAGIC = b"GGUF"


def chunks_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the rest of a stream in chunks of a megabyte."""
    while chunk := stream.read(_CHUNK):
        yield chunk


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class WeightsWriter:
    """Writes weights to a new file, and computes their sha256 meanwhile.

    Args:
        path: The new file.
        size: The expected number of bytes; more are an error.
        name: The name of the file in errors.
    """

    def __init__(self, path: Path, size: int, name: str) -> None:
        self._path = path
        self._size = size
        self._name = name
        self._hash = hashlib.sha256()
        self.written = 0

    def __enter__(self) -> "WeightsWriter":
        self._file = self._path.open("xb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        self.written += len(chunk)
        if self.written > self._size:
            raise ModelStoreError(f"{self._name}: is larger than the {self._size} bytes expected")
        self._hash.update(chunk)
        self._file.write(chunk)

    def finish(self, sha256: str) -> None:
        """Flush the file to the disk. Raises ModelStoreError if it is not the expected one."""
        if self.written != self._size:
            raise ModelStoreError(f"{self._name}: ended after {self.written} of {self._size} bytes")
        check_sha256(self._hash.hexdigest(), sha256, self._name)
        self._file.flush()
        os.fsync(self._file.fileno())


def check_sha256(found: str, expected: str, name: str) -> None:
    """Raise ModelStoreError for contents that are not those of the catalog."""
    if found != expected:
        raise ModelStoreError(
            f"{name}: is not the file that holodeck knows (sha256 {found}, expected {expected});"
            " it was deleted"
        )


@dataclass(frozen=True)
class Stamp:
    """What identifies the state of a file that was checked, without reading it."""

    size: int
    mtime_ns: int
    sha256: str

    @classmethod
    def of(cls, path: Path, sha256: str) -> "Stamp":
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns, sha256)


def is_intact(path: Path, size: int, sha256: str) -> bool:
    """Whether a file has the expected contents; it is read only if it changed since the last check.

    A file whose size and modification time are those of its stamp counts as unchanged.
    """
    if path.stat().st_size != size:
        return False
    return _read_stamp(path) == Stamp.of(path, sha256) or is_verified(path, sha256)


def is_verified(path: Path, sha256: str) -> bool:
    """Whether a file has the expected contents, by reading all of it; if so, it gets a stamp."""
    stamp = Stamp.of(path, sha256)
    if sha256_of(path) != sha256:
        return False
    with suppress(OSError):  # a read-only cache is checked anew each time
        _write_stamp(path, stamp)
    return True


def install(staged: Path, final: Path, sha256: str) -> None:
    """Move a checked file to its final name atomically."""
    staged.replace(final)
    _write_stamp(final, Stamp.of(final, sha256))
    if os.name == "posix":
        handle = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def stamp_file(path: Path) -> Path:
    """Return the path of a file's stamp."""
    return path.with_name(path.name + ".verified")


def _read_stamp(path: Path) -> Stamp | None:
    try:
        return Stamp(**json.loads(stamp_file(path).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _write_stamp(path: Path, stamp: Stamp) -> None:
    target = stamp_file(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    temporary.write_text(json.dumps(vars(stamp)), encoding="utf-8")
    temporary.replace(target)


_ALIGNMENT = 32
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
    """Convert a BERT model, safetensors and a vocabulary, to GGUF; yields the file in chunks.

    Only names and headers change, not the numbers. The same weights always give the same file, so
    that the catalog can contain its sha256. `weights` is read once, from start to end; `vocabulary`
    has a word piece per line; `heads` is the number of attention heads per layer.
    """
    (length,) = struct.unpack("<Q", weights.read(8))
    tensors = _tensors(json.loads(weights.read(length)))
    yield _padded(_head(tensors, vocabulary.split("\n")[:-1], heads))
    position = 0
    for tensor in tensors:
        weights.read(tensor.start - position)  # tensors that llama.cpp does not need
        yield _padded(weights.read(tensor.size))
        position = tensor.start + tensor.size


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


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


def _head(tensors: Sequence[Tensor], pieces: Sequence[str], heads: int) -> bytes:
    """Return all of the GGUF file but the numbers. Raises MissingExtra."""
    try:
        import gguf  # noqa: PLC0415 - few convert weights
    except ImportError as error:
        raise MissingExtra("local", "converting weights to GGUF") from error
    import numpy as np  # noqa: PLC0415 - as above

    shapes = {tensor.name: tensor.shape for tensor in tensors}
    context, width = shapes["position_embd.weight"]
    with TemporaryDirectory() as folder:
        path = Path(folder, "head.gguf")
        writer = gguf.GGUFWriter(path, "bert")
        writer.add_custom_alignment(_ALIGNMENT)
        writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        writer.add_block_count(sum(name.endswith(".attn_q.weight") for name in shapes))
        writer.add_context_length(context)
        writer.add_embedding_length(width)
        writer.add_feed_forward_length(shapes["blk.0.ffn_up.weight"][0])
        writer.add_head_count(heads)
        writer.add_layer_norm_eps(1e-12)
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        _add_tokens(writer, pieces)
        for tensor in tensors:
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype("float32"), tensor.size)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return path.read_bytes()


def _add_tokens(writer: "gguf.GGUFWriter", pieces: Sequence[str]) -> None:
    from gguf import TokenType  # noqa: PLC0415 - as above

    at = {name: pieces.index(f"[{name}]") for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    control = set(at.values())
    writer.add_tokenizer_model("bert")
    writer.add_token_list(
        [piece if n in control else _to_gguf_piece(piece) for n, piece in enumerate(pieces)]
    )
    writer.add_token_types(
        [TokenType.CONTROL if n in control else TokenType.NORMAL for n in range(len(pieces))]
    )
    writer.add_token_type_count(2)
    writer.add_bos_token_id(at["CLS"])
    writer.add_eos_token_id(at["SEP"])
    writer.add_unk_token_id(at["UNK"])
    writer.add_sep_token_id(at["SEP"])
    writer.add_pad_token_id(at["PAD"])
    writer.add_uint32("tokenizer.ggml.cls_token_id", at["CLS"])
    writer.add_mask_token_id(at["MASK"])


def _to_gguf_piece(piece: str) -> str:
    return piece[2:] if piece.startswith("##") else _SPACE + piece
