"""Redacts secrets: known values in any spelling, and texts that look like secrets."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from holodeck.lib.secrets.formats import (
    UNMISTAKABLE,
    may_hold_token,
    names_a_secret,
    names_a_secret_in_data,
    replace_tokens,
)

MASK = "***"
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
_NAME_NEEDLES = (
    "key", "token", "secret", "pass", "sharedaccess", "auth", "cookie", "cred", "dsn", "jwt", "pwd",
)  # fmt: skip
_VALUE = r"[A-Za-z0-9_.+/=!$%*@-]"
_NAMED = re.compile(
    # `db_password: X`, and also where JSON is in JSON; a word of prose has no digit
    r"((?<![\w.-])([A-Za-z][\w.-]{0,63})(?:=|\\{0,8}[\"']?\s{0,3}:\s{0,3})"
    r"(?:(?:[Bb]earer|[Bb]asic|[Tt]oken)\s)?\\{0,8}[\"']?)"
    rf"(?={_VALUE}{{0,100}}\d)(?={_VALUE}{{0,100}}[A-Za-z])({_VALUE}{{6,}})"
)
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
_MIXED = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{6,}")
_SLASHES = r"\\{0,16}+"
"""Backslashes before a character. The bounds here and below keep hostile texts from taking long."""
_ESCAPE = rf"{_SLASHES}(?<=\\)"
_ZEROS = "0{0,8}"
_PERCENT = "%(?:25){0,8}"
_AMPERSAND = (
    rf"{_SLASHES}(?:&|(?<=\\)(?:u00|x)26|{_PERCENT}26)(?:amp;|#{_ZEROS}38;|#[xX]{_ZEROS}26;)*"
)
"""The beginning of a reference of HTML, which may be in HTML, JSON or a URL itself."""
_NAMES = {"&": "|amp", "<": "|lt", ">": "|gt", '"': "|quot", "'": "|apos"}
_LINE_BREAK = rf"(?:\r?\n|(?:{_ESCAPE}r)?{_ESCAPE}n)[ \t]*+"
_PLAIN = {
    "\\": r"\\{1,16}+",
    "\n": _LINE_BREAK,
    "\r": rf"\r|{_ESCAPE}r",
    "\t": rf"\t|{_ESCAPE}t",
    " ": rf"{_SLASHES} |\+",
    "`": rf"{_SLASHES}`{{1,2}}",
    '"': r'[\\`]{0,16}+"{1,2}',
    "'": rf"""[\\`]{{0,16}}+'{{1,2}}|'{_ESCAPE}''|'{_SLASHES}"'{_SLASHES}"'""",
}
"""Characters that formats without numbers spell in a way of their own."""
_PARTS = re.compile(r"[A-Za-z0-9]+|\\+|.", re.DOTALL)
"""What is spelled as one: letters and digits, which no format changes, or another character."""
_SIGNS_AT_START = re.compile(r"[!-/:-@\[-`{-~\s]+")
_BETWEEN_LINES = re.compile(_LINE_BREAK)
_WRAPPED = re.compile(
    rf"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{{16,}}+{_LINE_BREAK})+[A-Za-z0-9+/]+={{0,2}}"
)
"""Base64 in lines, also where JSON holds the line breaks."""
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
        parts = dict[str, None]()
        for value in {secret.strip() for secret in secrets}:
            if len(value) >= MIN_SECRET_LENGTH and value.lower() not in _PLACEHOLDERS:
                parts.update(dict.fromkeys(_with_lines(value)))
        self._masks, self._known = _pattern_of(parts)

    def redact(self, text: str) -> str:
        """Return `text` without secrets."""
        if self._known is not None:
            text = self._known.sub(self._mask_known, text)
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
            text = _WHOLE.sub(MASK, text)
        if any(needle in lower for needle in _NAME_NEEDLES):
            text = _KEY_COLON.sub(_mask_value, _ASSIGNED.sub(_mask_value, text))
            text = _NAMED.sub(_mask_named_in_data, text)
        if _may_hold_parameters(text):
            text = _PARAMETER.sub(_mask_named, text)
        return _OPTION.sub(_mask_named, text) if "--" in text else text

    def holds_known(self, text: str) -> bool:
        """Whether one of the known secrets is in the text, in any spelling."""
        return self._known is not None and self._known.search(text) is not None

    def _redact_wrapped(self, match: re.Match[str]) -> str:
        """Return base64 in lines; as one line if that shows a known secret."""
        assert self._known is not None  # noqa: S101 - the caller knows
        line = _BETWEEN_LINES.sub("", match[0])
        shown = self._known.sub(self._mask_known, line)
        return match[0] if shown == line else shown

    def _mask_known(self, match: re.Match[str]) -> str:
        assert match.lastindex is not None  # noqa: S101 - a group ends each alternative
        return self._masks[match.lastindex - 1]

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
        return _mask(value) if is_secret_entry(key, value) else self._walk(value)


def is_secret_entry(key: object, value: object) -> bool:
    """Whether the key of a mapping says that its value is a secret."""
    if not isinstance(value, str) or not isinstance(key, str) or not value:
        return False
    if _SECRET_KEY.fullmatch(key):
        return True
    return names_a_secret_in_data(key) and _MIXED.fullmatch(value) is not None


def _pattern_of(secrets: Iterable[str]) -> tuple[list[str], re.Pattern[str] | None]:
    """Return the mask for each group of a pattern, and the pattern; None without a secret.

    Longer secrets come first. Those with the same first letter are together, or each would be tried
    at every position of a text.
    """
    by_first: dict[str, list[tuple[str, str]]] = {}
    for secret in sorted(secrets, key=len, reverse=True):
        for spelled in dict.fromkeys(_spellings(secret)):
            first = spelled[0] if spelled[0].isalnum() else ""
            by_first.setdefault(first, []).append((spelled[len(first) :], _mask(secret)))
    masks = [mask for rest in by_first.values() for _, mask in rest]
    alternatives = [
        f"{first}(?:{'|'.join(f'{spelled}()' for spelled, _ in rest)})"
        for first, rest in by_first.items()
    ]
    return masks, re.compile("|".join(alternatives)) if alternatives else None


def _is_empty(value: Any) -> bool:
    """Whether nothing is in the value; a result is false if it did not pass."""
    return not value and not isinstance(value, BaseModel)


def _gather(value: Any, texts: list[str]) -> bool:
    """Collect every text in `value`; False if a key marks its value as a secret that is shown."""
    if _is_empty(value) or isinstance(value, _NEVER_SECRET):
        return True
    if isinstance(value, str):
        texts.append(value)
        return True
    parts: Iterable[Any] = ()
    if isinstance(value, BaseModel):
        parts = vars(value).values()
    elif isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, dict):
        # A value that is masked already, as models show keys, is nothing to search a report for.
        if any(
            is_secret_entry(key, item) and not item.startswith(MASK) for key, item in value.items()
        ):
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
    if secret.startswith(MASK):  # a known value that a pattern matches, too
        return secret
    return MASK + (secret[-4:] if len(secret) >= _MIN_LENGTH_FOR_HINT else "")


def _mask_value(match: re.Match[str]) -> str:
    return match[1] + _mask(match[2])


def _mask_named_in_data(match: re.Match[str]) -> str:
    return match[1] + _mask(match[3]) if names_a_secret_in_data(match[2]) else match[0]


def _mask_named(match: re.Match[str]) -> str:
    return match[1] + _mask(match[3]) if names_a_secret(match[2]) else match[0]


def _spellings(secret: str) -> Iterator[str]:
    """Yield patterns of a secret: one for the formats of text, and one for each whole encoding."""
    signs = _SIGNS_AT_START.match(secret)
    rest = secret if signs is None else secret[signs.end() :]
    # Signs at the start would be looked for at every position of a text, and tell nothing.
    yield _in_any_format(rest if len(rest) >= MIN_SECRET_LENGTH else secret)
    raw = _bytes_of(secret)
    yield from (raw.hex(), raw.hex().upper())
    forms = (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    for form in dict.fromkeys(forms):
        yield from map(_in_any_format, _base64_of(_bytes_of(form)))


def _in_any_format(text: str) -> str:
    """Return a pattern of a text in URLs, JSON, HTML, mails, shells and programming languages.

    Formats may be within each other.
    """
    return "".join(map(_any_spelling, _PARTS.findall(text)))


def _any_spelling(part: str) -> str:
    """Return a pattern of letters as they are, or of one other character as any format has it."""
    char = part[0]
    if part.isascii() and part.isalnum():
        return part
    plain = _PLAIN.get(char) or rf"[\\`]{{0,16}}+{re.escape(char)}"
    code, units = ord(char), char.encode("utf-16-be", "surrogatepass")
    halves = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    forms = (
        plain,
        _escaped(code),
        "".join(map(_escaped, halves)),
        f"{_AMPERSAND}(?:#{_ZEROS}{code}|#[xX]{_ZEROS}{_hex(code)}{_names_of(char)});",
        "".join(map(_any_byte, _bytes_of(char))),
    )
    spelled = f"(?:{'|'.join(dict.fromkeys(forms))})"
    # Not `{1,32}+`: before 3.11.5, Python misses matches of a group with alternatives in it.
    return f"(?>{spelled}{{1,32}})" if char == "\\" else spelled


def _escaped(code: int) -> str:
    return rf"{_ESCAPE}[uUx]\{{?{_ZEROS}{_hex(code)}\}}?"


def _any_byte(byte: int) -> str:
    return rf"(?:(?:{_PERCENT}|{_ESCAPE}x|=){_hex(byte, 2)}|{_ESCAPE}{byte:03o})"


def _hex(number: int, digits: int = 1) -> str:
    """Return a pattern of a number in upper or lower case."""
    text = f"{number:0{digits}x}"
    return re.sub("[a-f]", lambda digit: f"[{digit[0]}{digit[0].upper()}]", text)


def _names_of(char: str) -> str:
    """Return the names of a character in HTML, as further alternatives."""
    if char.isascii():
        return _NAMES.get(char, "")
    # Imported here because few secrets have such characters.
    from html.entities import codepoint2name  # noqa: PLC0415

    name = codepoint2name.get(ord(char))
    return "" if name is None else f"|{name}"


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
