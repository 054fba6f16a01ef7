"""Redacts secrets: known values in any spelling, and texts that look like secrets."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, TypeVar, cast
from urllib.parse import quote, quote_plus

from pydantic import BaseModel

from holodeck.models.result_sequence import ResultSequence

MIN_SECRET_LENGTH = 6
"""Shorter values are ordinary words; redacting them would garble reports."""
_MIN_LENGTH_FOR_HINT = 12
_PLACEHOLDERS = frozenset(
    {"ollama", "lm-studio", "not-needed", "no-key", "no-key-required", "sk-no-key-required"}
    | {"dummy-key", "placeholder", "changeme", "change-me", "your-api-key"}
)
"""Values that people write for servers that want some key; they are no secrets."""

# Words of which a text must hold one, in lower case, for the pattern to match, and the pattern.
# Without this test, a long response would take a second.
_PATTERNS = tuple(
    (needles.split(), re.compile(pattern))
    for needles, pattern in (
        ("sk-", r"\bsk-[A-Za-z0-9_-]{12,}"),
        ("akia asia", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
        ("ghp_ gho_ ghu_ ghs_ ghr_", r"\bgh[pousr]_[A-Za-z0-9]{16,}"),
        ("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
        ("glpat-", r"\bglpat-[A-Za-z0-9_-]{16,}"),
        ("xox", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
        ("hf_", r"\bhf_[A-Za-z0-9]{24,}"),
        ("aiza", r"\bAIza[0-9A-Za-z_-]{35}"),
        ("eyj", r"\beyJ[A-Za-z0-9_-]{8,400}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]+"),
        (
            "-----begin",
            r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^-]{1,8000}(?:-----END[A-Z ]{0,40}-----)?",
        ),
        ("://", r"(?<=://)[^\s/?#@]{1,512}(?=@)"),
        # A scheme word in prose ("a bearer certificate") is not followed by a token with a digit.
        ("bearer", r"(?i)(?<=\bbearer )\s*(?=[^\s\"',;]{0,400}[\d=])[A-Za-z0-9._~+/=-]{8,}"),
        ("basic", r"(?i)(?<=\bbasic )\s*(?=[^\s\"',;]{0,400}[\d=])[A-Za-z0-9+/=]{8,}"),
    )
)
_NAME = (
    r"(?:x[_-])?api[_-]?key|access[_-]?token|auth[_-]?token|client[_-]?secret|"
    r"secret[_-]?(?:access[_-]?)?key|password|passwd"
)
_ASSIGNED = re.compile(
    rf"(?i)((?:{_NAME})(?:=|[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']))([^\s\"'&,;}}]{{6,}})"
)
_NAME_NEEDLES = ("key", "token", "secret", "passw")
_ALL_NEEDLES = (*(one for needles, _ in _PATTERNS for one in needles), *_NAME_NEEDLES)
_KEY_COLON = re.compile(r"(?i)(\bapi[_-]?key\s{0,3}:\s{0,3})([A-Za-z0-9_.+/=-]{6,})")
_SECRET_KEY = re.compile(rf"(?i)(?:{_NAME}|secret|authorization)")

_TEXTS_AT_ONCE = 500
"""Texts that are searched together: enough to be fast, few enough not to copy a whole report."""
_NEVER_SECRET = (int, float, Enum)
ModelT = TypeVar("ModelT", bound=BaseModel)
PartT = TypeVar("PartT")


class Redactor:
    """Replaces secrets by `***`; the last four characters of a long one stay, to identify it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._stands_for: dict[str, str] = {}
        for value in {secret.strip() for secret in secrets}:
            if len(value) >= MIN_SECRET_LENGTH and value.lower() not in _PLACEHOLDERS:
                self._stands_for.update((form, _mask(value)) for form in _spellings(value))
        longest_first = sorted(self._stands_for, key=len, reverse=True)
        known = "|".join(map(re.escape, longest_first))
        self._known = re.compile(known) if known else None

    def redact(self, text: str) -> str:
        """Return `text` without secrets."""
        if self._known is not None:
            text = self._known.sub(lambda match: self._stands_for[match[0]], text)
        lower = text.lower()
        if not _is_suspicious(lower):
            return text
        for needles, pattern in _PATTERNS:
            if any(needle in lower for needle in needles):
                text = pattern.sub(lambda match: _mask(match[0]), text)
        if any(needle in lower for needle in _NAME_NEEDLES):
            text = _KEY_COLON.sub(_mask_value, _ASSIGNED.sub(_mask_value, text))
        return text

    def redact_frame(self, report: ModelT) -> ModelT:
        """Return a report without secrets whose results have none any more."""
        results = {"results": vars(report)["results"]}
        frame = self.redact_report(report.model_copy(update={"results": []}))
        return frame.model_copy(update=results)

    def redact_report(self, report: PartT) -> PartT:
        """Return the report, or any part of one, without secrets; verdicts stay unchanged."""
        texts = list[str]()
        lazy = list[ResultSequence[Any]]()
        if _gather(report, texts, lazy):
            # One search for many texts, as nearly all hold no secret. Only private keys span lines,
            # so joining the texts hides no secret.
            starts = range(0, len(texts), _TEXTS_AT_ONCE)
            joined = ("\n".join(texts[at : at + _TEXTS_AT_ONCE]) for at in starts)
            is_clean = all(self.redact(text) == text for text in joined)
            # Of results that are not in memory, each is searched alone, and none is kept.
            if is_clean and all(self.redact_report(one) is one for part in lazy for one in part):
                return report
        return cast(PartT, self._walk(report))

    def _walk(self, value: Any) -> Any:
        if _is_empty(value) or isinstance(value, _NEVER_SECRET):
            return value
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, BaseModel):
            return self._walk_model(value)
        if isinstance(value, dict):
            return {self._walk(key): self._entry(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple | ResultSequence):
            clean = map(self._walk, value)
            return tuple(clean) if isinstance(value, tuple) else list(clean)
        return value

    def _walk_model(self, model: ModelT) -> ModelT:
        """Return the model itself if it holds no secret, which is nearly always."""
        changed = {}
        for name, value in vars(model).items():
            clean = self._walk(value)
            if clean is not value:
                changed[name] = clean
        return model.model_copy(update=changed) if changed else model

    def _entry(self, key: Any, value: Any) -> Any:
        if isinstance(key, str) and isinstance(value, str) and _SECRET_KEY.fullmatch(key):
            return _mask(value) if value else value
        return self._walk(value)


def _is_empty(value: Any) -> bool:
    """Whether nothing is in the value; a result is false if it did not pass."""
    return not value and not isinstance(value, BaseModel)


def _gather(value: Any, texts: list[str], lazy: list[ResultSequence[Any]]) -> bool:
    """Collect every text in `value`; False if a key marks its value as a secret.

    Results that are not all in memory are collected in `lazy` instead.
    """
    if isinstance(value, str):
        texts.append(value)
        return True
    if _is_empty(value) or isinstance(value, _NEVER_SECRET):
        return True
    parts: Iterable[Any] = ()
    if isinstance(value, BaseModel):
        parts = vars(value).values()
    elif isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, ResultSequence):
        lazy.append(value)
    elif isinstance(value, dict):
        if any(isinstance(key, str) and _SECRET_KEY.fullmatch(key) for key in value):
            return False
        parts = (*value, *value.values())
    for part in parts:  # noqa: SIM110 - all() takes twice as long
        if not _is_empty(part) and not _gather(part, texts, lazy):
            return False
    return True


def _is_suspicious(lower: str) -> bool:
    """Whether any pattern may match; a plain loop, as this runs for every text."""
    for needle in _ALL_NEEDLES:  # noqa: SIM110 - any() takes three times as long
        if needle in lower:
            return True
    return False


def _mask(secret: str) -> str:
    if secret.startswith("***"):  # a known value that a pattern matches, too
        return secret
    return "***" + (secret[-4:] if len(secret) >= _MIN_LENGTH_FOR_HINT else "")


def _mask_value(match: re.Match[str]) -> str:
    return match[1] + _mask(match[2])


def _spellings(value: str) -> Iterator[str]:
    """Yield the forms of a value in URLs, JSON, logs and headers."""
    raw = _bytes_of(value)
    yield value
    yield quote(raw, safe="")
    yield quote_plus(raw)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield from _base64_of(raw)


def _bytes_of(value: str) -> bytes:
    """Return the bytes as in the environment; undecodable ones are surrogates in Python."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _base64_of(raw: bytes) -> Iterator[str]:
    """Yield what base64 of any text around `raw` must contain, for each alignment of `raw`."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        start = (0, 2, 3)[before]
        end = len(encoded) - bool((before + len(raw)) % 3)
        core = encoded[start:end]
        if len(core) >= MIN_SECRET_LENGTH + 2:
            yield core
            yield core.translate(str.maketrans("+/", "-_"))
