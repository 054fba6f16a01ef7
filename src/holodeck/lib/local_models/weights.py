"""Files of weights: their checksums, and the GGUF file of a BERT model."""

import hashlib
import json
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.errors import MissingExtra, ModelStoreError

if TYPE_CHECKING:
    import gguf

_MAGIC = b"GGUF"


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def check_sha256(path: Path, sha256: str, name: str) -> None:
    """Raise ModelStoreError for contents that are not those of the catalog."""
    actual = sha256_of(path)
    if actual != sha256:
        raise ModelStoreError(
            f"{name}: is not the file that holodeck knows (sha256 {actual}, expected {sha256});"
            " it was deleted"
        )


def is_intact(path: Path, size: int, sha256: str) -> bool:
    """Whether a file has the expected contents; it is read only if it changed since the last check.

    A file whose size and modification time are those of its stamp counts as unchanged.
    """
    if path.stat().st_size != size:
        return False
    with suppress(OSError):
        if stamp_file(path).read_text(encoding="utf-8") == _stamp_of(path, sha256):
            return True
    return is_verified(path, sha256)


def is_verified(path: Path, sha256: str) -> bool:
    """Whether a file has the expected contents, by reading all of it; if so, it gets a stamp."""
    stamp = _stamp_of(path, sha256)
    if sha256_of(path) != sha256:
        return False
    with suppress(OSError):  # a read-only cache is checked anew each time
        _write_stamp(path, stamp)
    return True


def install(staged: Path, final: Path, sha256: str) -> None:
    """Move a checked file to its final name atomically."""
    with staged.open("rb") as file:
        os.fsync(file.fileno())
    staged.replace(final)
    _write_stamp(final, _stamp_of(final, sha256))


def stamp_file(path: Path) -> Path:
    """Return the path of a file's stamp."""
    return path.with_name(path.name + ".verified")


def _stamp_of(path: Path, sha256: str) -> str:
    """Return what identifies the state of a file that was checked, without reading it."""
    stat = path.stat()
    return json.dumps({"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256})


def _write_stamp(path: Path, stamp: str) -> None:
    target = stamp_file(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    temporary.write_text(stamp, encoding="utf-8")
    temporary.replace(target)


_ALIGNMENT = 32
_MOST_LAYERS = 100
_SPACE = "\u2581"
"""The first character of pieces at the start of a word."""


def write_gguf(path: Path, weights: bytes, vocabulary: str, heads: int) -> None:
    """Write a BERT model, safetensors and a vocabulary, to a GGUF file. Raises MissingExtra.

    Only names and headers change, not the numbers. The same weights always give the same file, so
    that the catalog can contain its sha256. `vocabulary` has a word piece per line; `heads` is the
    number of attention heads per layer.
    """
    try:
        import gguf
    except ImportError as error:
        raise MissingExtra("local", "converting weights to GGUF") from error
    import numpy as np

    (length,) = struct.unpack_from("<Q", weights)
    header = json.loads(weights[8 : 8 + length])
    numbers = memoryview(weights)[8 + length :]
    names, by_start = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, _MOST_LAYERS), {}
    for source_name, entry in header.items():
        name = names.get_name(source_name, try_suffixes=(".weight", ".bias"))
        if name is not None:  # one that llama.cpp needs
            start, end = entry["data_offsets"]
            tensor = np.frombuffer(numbers[start:end], "<f4").reshape(entry["shape"])
            by_start[start] = (name, tensor)
    tensors = dict(by_start[start] for start in sorted(by_start))
    context, width = tensors["position_embd.weight"].shape
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_custom_alignment(_ALIGNMENT)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_block_count(sum(name.endswith(".attn_q.weight") for name in tensors))
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(len(tensors["blk.0.ffn_up.weight"]))
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    _add_tokens(writer, vocabulary.split("\n")[:-1])
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokens(writer: "gguf.GGUFWriter", pieces: list[str]) -> None:
    from gguf import TokenType

    at = {name: pieces.index(f"[{name}]") for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    control = set(at.values())
    writer.add_tokenizer_model("bert")
    words = [piece[2:] if piece.startswith("##") else _SPACE + piece for piece in pieces]
    writer.add_token_list([pieces[n] if n in control else word for n, word in enumerate(words)])
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
