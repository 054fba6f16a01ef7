"""Cuts texts into words for languages that the metrics' own rules cannot cut."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.models.metrics.text import Tokenize

_KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_WITHOUT_SPACES = {
    "Chinese characters": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Japanese kana": _KANA,
    "Thai": "\u0e00-\u0e7f",
    "Lao": "\u0e80-\u0eff",
    "Burmese": "\u1000-\u109f",
    "Khmer": "\u1780-\u17ff",
}
"""Scripts that are written without spaces between words, as ranges of a regular expression."""
_RUNS = {
    script: re.compile(f"[{letters}]" if letters is _KANA else f"[{letters}]{{2}}")
    for script, letters in _WITHOUT_SPACES.items()
}
"""Two letters in a row may be two words; one kana shows that the characters are Japanese."""
_CUT_BY: dict[Tokenize, frozenset[str]] = {
    "zh": frozenset({"Chinese characters"}),
    "ja-mecab": frozenset({"Chinese characters", "Japanese kana"}),
    "char": frozenset(_RUNS),
    "flores200": frozenset(_RUNS),
}
_REQUIRED = {
    "ja-mecab": ("nlp-ja", ("MeCab", "ipadic")),
    "flores200": ("nlp-spm", ("sentencepiece",)),
}
_WORD_BEGINS = "\u2581"
"""What sentencepiece writes for a space."""


def check_tokenizer(name: Tokenize | None) -> None:
    """Raise ConfigError if what the tokenizer needs is not on this machine; nothing is fetched."""
    if name not in _REQUIRED:
        return
    extra, modules = _REQUIRED[name]
    if any(find_spec(module) is None for module in modules):
        raise MissingExtra(extra, f"tokenize: {name}")
    if name == "flores200" and not (model := _flores_model()).is_file():
        raise ConfigError(
            "tokenize",
            f"flores200 needs the file {model}, which is not there; download it with:"
            " python -c \"from sacrebleu import BLEU; BLEU(tokenize='flores200')\"",
        )


def _flores_model() -> Path:
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    return Path(SACREBLEU_DIR) / "models" / Path(SPM_MODELS["flores200"]["url"]).name


def cut(text: str, tokenizer: Tokenize | None) -> str:
    """Return the text with spaces between its words; unchanged without a tokenizer.

    `char` keeps combining marks with their letter, as people read them.
    """
    if tokenizer is None:
        return text
    if tokenizer == "char":
        return _cut_characters(text)
    return str(_tokenizer(tokenizer)(text)).replace(_WORD_BEGINS, " ")


def _cut_characters(text: str) -> str:
    return "".join(
        char if unicodedata.category(char)[0] == "M" else f" {char}" for char in text
    ).lstrip()


@cache
def _tokenizer(name: Tokenize) -> Any:
    """Return sacrebleu's tokenizer, made once as loading a dictionary takes a while."""
    from sacrebleu import BLEU

    return BLEU(tokenize=name).tokenizer


@lru_cache(maxsize=1024)
def uncut_scripts(text: str, tokenizer: Tokenize | None) -> Sequence[str]:
    """Return the scripts of the text between whose words the tokenizer finds no border."""
    if text.isascii():
        return ()
    known = _CUT_BY[tokenizer] if tokenizer is not None else frozenset()
    return tuple(
        script for script, run in _RUNS.items() if script not in known and run.search(text)
    )


def note_about(scripts: Sequence[str], tokenizer: Tokenize | None) -> str:
    """Return a sentence for people about texts that were not cut into words."""
    better = "zh" if scripts == ("Chinese characters",) else "char"
    if "Japanese kana" in scripts:
        better = "ja-mecab"
    by = "the default tokenizer" if tokenizer is None else f"tokenize: {tokenizer}"
    return (
        f"{by} cannot cut {' and '.join(scripts)} into words, so the score compares whole"
        f" phrases; write tokenize: {better}"
    )
