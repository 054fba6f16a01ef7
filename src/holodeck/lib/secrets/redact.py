"""Redacts secrets: known values in any spelling, and texts that look like secrets."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from quopri import encodestring
from typing import Any, TypeVar, cast
from urllib.parse import quote, quote_plus

from pydantic import BaseModel

from holodeck.lib.secrets.secret_names import UNMISTAKABLE, names_a_secret
from holodeck.lib.secrets.token_formats import may_hold_token, replace_tokens

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
_WHOLE_NEEDLES = (
    "hooks.slack.com",
    "/webhooks/",
    "webhook.office.com",
    "/hooks/catch/",
    "/bot",
    "-u ",
)
_WHOLE = re.compile(
    r"(?<=hooks\.slack\.com/)[\w/-]{4,}|(?<=/webhooks/)[\w/-]{12,}|(?<=/hooks/catch/)[\w/-]{4,}|"
    r"(?<=webhook\.office\.com/)[\w/@-]{12,}|(?<=/bot)\d{1,20}:[\w-]{3,}|"
    r"(?<=-u )(?!\d+:\d+\b)[\w.@+-]{1,64}:(?!//)[^\s\"']{6,}"
)
"""What is replaced with its last characters: the paths of webhooks and bots, and `-u name:pass`."""
_ASSIGNED = re.compile(
    rf"(?i)((?:{UNMISTAKABLE})(?:=|[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']))([^\s\"'&,;}}]{{6,}})"
)
_NAME_NEEDLES = ("key", "token", "secret", "pass", "sharedaccess")
_PARAMETER = re.compile(r"((?:[?&;]|\\u0026)([A-Za-z][\w.-]{0,63})=)([^\s\"'`<>&;#\\)\]}]{6,})")
_OPTION = re.compile(
    # an option and its value in one word or list item, or in two; a word of prose has no digit
    r"((?<![\w-])--([A-Za-z][\w-]{1,63})(?:=|(?:\s{1,3}|[\"'],\s{0,3}[\"'])(?=[^\s\"',]{0,400}[\d=])))"
    r"([^\s\"',;-][^\s\"',;]{5,})"
)
_ALL_NEEDLES = (
    *(needle for needles, _ in _PATTERNS for needle in needles),
    *_NAME_NEEDLES,
    *_WHOLE_NEEDLES,
)
_KEY_COLON = re.compile(
    # "Your password: choose a long one" has no digit
    r"(?i)(\bapi[_-]?key\s{0,3}:\s{0,3}|"
    r"\b(?:password|passwd|passphrase|secret)\s{0,3}:\s{0,3}(?=\S{0,100}\d))"
    r"([A-Za-z0-9_.+/=!$%*@-]{6,})"
)
_SECRET_KEY = re.compile(rf"(?i)(?:{UNMISTAKABLE}|secret|authorization)")
_WRAPPED = re.compile(
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{40,}+(?:\r?\n|\\r\\n|\\n)[ \t]*+)+[A-Za-z0-9+/]+={0,2}"
)
"""Base64 in lines, also where JSON holds the line breaks."""
_LINE_BREAK = re.compile(r"(?:\r?\n|\\r\\n|\\n)[ \t]*")
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_IN_HTML = re.compile(r"[<>&]")
"""What Go writes as `\\u003c`, and .NET as `\\u003C`, with quotes and a plus."""
_IN_HTML_OR_QUOTED = re.compile(r"[<>&'+]|\\\"")
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


class _References(dict[int, str]):
    """A table for `str.translate` that writes characters beyond ASCII as references of HTML."""

    def __init__(self, form: str) -> None:
        self._form = form

    def __missing__(self, code: int) -> str:
        return chr(code) if code < _ASCII else self._form.format(code)


_ASCII = 128
_DECIMAL, _HEXADECIMAL = _References("&#{};"), _References("&#x{:X};")
_BEGINNING = 4
_MIN_LINE = 16
"""Shorter lines of a secret are ordinary text."""

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
                for part in _with_lines(value):
                    self._stands_for.update((form, _mask(part)) for form in _spellings(part))
        self._known = _pattern_of(self._stands_for)

    def redact(self, text: str) -> str:
        """Return `text` without secrets."""
        if self._known is not None:
            text = self._known.sub(lambda match: self._stands_for[match[0]], text)
            if "\n" in text or "\\n" in text:
                text = _WRAPPED.sub(self._redact_wrapped, text)
        if may_hold_token(text):
            text = replace_tokens(text, _mask)
        lower = text.lower()
        if not _is_suspicious(lower):
            return text
        for needles, pattern in _PATTERNS:
            if any(needle in lower for needle in needles):
                text = pattern.sub(lambda match: _mask(match[0]), text)
        if any(needle in lower for needle in _WHOLE_NEEDLES):
            text = _WHOLE.sub("***", text)
        if any(needle in lower for needle in _NAME_NEEDLES):
            text = _KEY_COLON.sub(_mask_value, _ASSIGNED.sub(_mask_value, text))
        if _may_hold_parameters(text):
            text = _PARAMETER.sub(_mask_named, text)
        return _OPTION.sub(_mask_named, text) if "--" in text else text

    def _redact_wrapped(self, match: re.Match[str]) -> str:
        """Return base64 in lines; as one line if that shows a known secret."""
        assert self._known is not None  # noqa: S101 - the caller knows
        line = _LINE_BREAK.sub("", match[0])
        shown = self._known.sub(lambda secret: self._stands_for[secret[0]], line)
        return match[0] if shown == line else shown

    def redact_frame(self, report: ModelT) -> ModelT:
        """Return a report without secrets whose results have none any more."""
        results = {"results": vars(report)["results"]}
        frame = self.redact_report(report.model_copy(update={"results": []}))
        return frame.model_copy(update=results)

    def redact_report(self, report: PartT) -> PartT:
        """Return the report, or any part of one, without secrets; verdicts stay unchanged."""
        texts = list[str]()
        if _gather(report, texts):
            # One search for many texts, as nearly all hold no secret. Only private keys span lines,
            # so joining the texts hides no secret.
            starts = range(0, len(texts), _TEXTS_AT_ONCE)
            joined = ("\n".join(texts[at : at + _TEXTS_AT_ONCE]) for at in starts)
            if all(self.redact(text) == text for text in joined):
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
        if isinstance(value, list | tuple):
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


def _pattern_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern of all the texts, the longest first; None if there are none.

    Beginnings that several share stand once, or each would be tried wherever one of them begins.
    """
    endings: dict[str, list[str]] = {}
    for text in sorted(texts, key=len, reverse=True):
        endings.setdefault(text[:_BEGINNING], []).append(re.escape(text[_BEGINNING:]))
    known = "|".join(f"{re.escape(start)}(?:{'|'.join(ends)})" for start, ends in endings.items())
    return re.compile(known) if known else None


def _is_empty(value: Any) -> bool:
    """Whether nothing is in the value; a result is false if it did not pass."""
    return not value and not isinstance(value, BaseModel)


def _gather(value: Any, texts: list[str]) -> bool:
    """Collect every text in `value`; False if a key marks its value as a secret."""
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
    elif isinstance(value, dict):
        if any(isinstance(key, str) and _SECRET_KEY.fullmatch(key) for key in value):
            return False
        parts = (*value, *value.values())
    for part in parts:  # noqa: SIM110 - all() takes twice as long
        if not _is_empty(part) and not _gather(part, texts):
            return False
    return True


def _may_hold_parameters(text: str) -> bool:
    """Whether there may be a URL with a query."""
    return "=" in text and ("?" in text or "&" in text)


def _is_suspicious(lower: str) -> bool:
    """Whether any pattern may match; a plain loop, as this runs for every text."""
    if "--" in lower or _may_hold_parameters(lower):
        return True
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


def _mask_named(match: re.Match[str]) -> str:
    return match[1] + _mask(match[3]) if names_a_secret(match[2]) else match[0]


def _spellings(value: str) -> Iterator[str]:
    """Yield the forms of a value in URLs, JSON, HTML, logs, mails, shells and headers."""
    raw = _bytes_of(value)
    yield value
    yield from (repr(value)[1:-1], repr(raw)[2:-1])
    yield value.replace("'", "'\\''")
    yield value.replace("'", "'\"'\"'")
    yield encodestring(raw).decode().replace("=\n", "")
    for as_url in (quote(raw, safe=""), quote(raw), quote(raw, safe="!'()*"), quote_plus(raw)):
        yield as_url
        yield quote(as_url, safe="")
        yield _PERCENT.sub(lambda match: match[0].lower(), as_url)
    for as_json in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield as_json
        yield json.dumps(as_json)[1:-1]
        yield _ESCAPED.sub(lambda match: f"\\u{match[1].upper()}", as_json)
        yield as_json.replace("/", "\\/")
        yield _IN_HTML.sub(lambda match: f"\\u{ord(match[0]):04x}", as_json)
        yield _IN_HTML_OR_QUOTED.sub(lambda match: f"\\u{ord(match[0][-1]):04X}", as_json)
    as_html = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    quoted = as_html.replace('"', "&quot;")
    for form in (
        value,
        as_html,
        *(quoted.replace("'", one) for one in ("&#x27;", "&#39;", "&apos;")),
    ):
        yield from (form, form.translate(_DECIMAL), form.translate(_HEXADECIMAL))
    yield from (raw.hex(), raw.hex().upper())
    yield from _base64_of(raw)


def _with_lines(value: str) -> Iterator[str]:
    """Yield a value and, of a key or certificate, each line that identifies it."""
    yield value
    if "\n" in value:
        for line in map(str.strip, value.split("\n")):
            if len(line) >= _MIN_LINE and not line.startswith("-----"):
                yield line


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
