"""A known secret is found however a format spells it, and also where one format is in another."""

import base64
import html
import json
import quopri
import re
import shlex
import textwrap
from html.entities import codepoint2name
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import quoteattr

from holodeck.lib.secrets.redact import Redactor
from support.pace import bounded_work

SECRETS = [
    "abCD+ef/gh=IJ&kl==",
    "to\"ken's<val>&x1",
    "a\\b\\\\c\\nd1e2f3",
    "correct horse & battery 7",
    "pässwörd-Ünï7€😀",
    "-zz-top_9.secret~x",
    "$ecr3t$`id`{x}!#50%2F",
    '{"type": "service_account", "private_key": "q/w+e=r<t>y&u"}',
    "-----BEGIN KEY-----\n"
    + "\n".join([f"{at}x+/AbC=" * 6 for at in range(4)])
    + "\n-----END-----",
]


def numbered(form):
    """Every sign and letter beyond ASCII as the number of its code."""
    return lambda text: re.sub(r"[^A-Za-z0-9]", lambda char: form.format(ord(char[0])), text)


def in_utf16(form, signs=r"[^A-Za-z0-9]"):
    """As `numbered`, in units of UTF-16."""

    def spell(match):
        units = match[0].encode("utf-16-be").hex()
        return "".join(form.format(int(units[at : at + 4], 16)) for at in range(0, len(units), 4))

    return lambda text: re.sub(signs, spell, text)


def each(replacements):
    return lambda text: "".join(replacements.get(char, char) for char in text)


def lower(spelled):
    return re.sub("%..", lambda match: match[0].lower(), spelled)


def in_json(text):
    return json.dumps(text)[1:-1]


def in_url(text):
    return quote(text, safe="")


def in_base64(text, before=b"user:"):
    return base64.b64encode(before + text.encode() + b" and what follows").decode()


def in_lines(text, width, end="\n"):
    return end.join(textwrap.wrap(in_base64(text, b"what is before " * 4), width))


LESS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
SPELLINGS = {
    "html": html.escape,
    "jinja, go": each(LESS | {'"': "&#34;", "'": "&#39;", "+": "&#43;"}),
    "php": each(LESS | {'"': "&quot;", "'": "&#039;"}),
    "handlebars": each(LESS | {'"': "&quot;", "'": "&#x27;", "`": "&#x60;", "=": "&#x3D;"}),
    "xml": each(LESS | {'"': "&quot;", "'": "&apos;", "\n": "&#10;"}),
    "attribute": lambda text: quoteattr(text)[1:-1],
    "decimal": numbered("&#{};"),
    "hexadecimal": numbered("&#X{:04X};"),
    "named": each({chr(code): f"&{name};" for code, name in codepoint2name.items()}),
    "html twice": lambda text: html.escape(html.escape(text)),
    "html in json": lambda text: in_json(html.escape(text)),
    "json in html": lambda text: html.escape(in_json(text)),
    "url": in_url,
    "url lower": lambda text: lower(in_url(text)),
    "path": quote,
    "form": quote_plus,
    "encodeURI": lambda text: quote(text, safe=";,/?:@&=+$-_.!~*'()#"),
    "url twice": lambda text: in_url(in_url(text)),
    "url twice, lower": lambda text: lower(in_url(lower(in_url(text)))),
    "url in html": lambda text: html.escape(quote(text, safe="/&+'")),
    "json": in_json,
    "json utf-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json upper": lambda text: in_utf16("\\u{:04X}", r"[^ -~]")(text.replace("\\", "\\\\")),
    "json twice": lambda text: in_json(in_json(text)),
    "json three times": lambda text: in_json(in_json(in_json(text))),
    "json of go": lambda text: in_utf16("\\u{:04x}", "[<>&]")(in_json(text)),
    "json of go in json": lambda text: in_json(in_utf16("\\u{:04x}", "[<>&]")(in_json(text))),
    "json of .net": lambda text: in_utf16("\\u{:04X}", "[<>&'+`]")(
        in_json(text).replace('\\"', "\\u0022")
    ),
    "json of php": lambda text: in_json(text).replace("/", "\\/"),
    "json of php in json": lambda text: in_json(in_json(text).replace("/", "\\/")),
    "javascript": in_utf16("\\u{:04x}"),
    "rust": numbered("\\u{{{:x}}}"),
    "python": lambda text: repr(text)[1:-1],
    "python twice": lambda text: repr(repr(text))[1:-1],
    "python bytes": lambda text: repr(text.encode())[2:-1],
    "python ascii": lambda text: ascii(text)[1:-1],
    "octal": lambda text: "".join(
        char if char.isascii() else "".join(f"\\{byte:03o}" for byte in char.encode())
        for char in text
    ),
    "regular expression": re.escape,
    "markdown": lambda text: re.sub(r"([\\`*_{}\[\]()#+\-.!|<>~])", r"\\\1", text),
    "shell": shlex.quote,
    "shell, other quotes": lambda text: text.replace("'", "'\\''"),
    "shell, %q": lambda text: re.sub(r"([^\w\n./:=-])", r"\\\1", text, flags=re.ASCII),
    "powershell": lambda text: re.sub(r"([`$\"])", r"`\1", text),
    "sql, yaml": lambda text: text.replace("'", "''"),
    "csv": lambda text: text.replace('"', '""'),
    "mail": lambda text: quopri.encodestring(text.encode()).decode().replace("=\n", ""),
    "mail, spaces": lambda text: quopri.encodestring(text.encode(), quotetabs=True)
    .decode()
    .replace("=\n", ""),
    "windows": lambda text: text.replace("\n", "\r\n"),
    "indented": lambda text: text.replace("\n", "\n    "),
    "a line": lambda text: max(text.split("\n"), key=len),
    "hex": lambda text: text.encode().hex(),
    "hex upper": lambda text: text.encode().hex().upper(),
    "base64": in_base64,
    "base64 of json": lambda text: in_base64(json.dumps({"key": text}), b""),
    "base64 of a url": lambda text: in_base64(text).replace("+", "-").replace("/", "_"),
    "base64 in a url": lambda text: in_url(in_base64(text)),
    "base64 of php": lambda text: in_base64(text).replace("/", "\\/"),
    "base64 in lines": lambda text: in_lines(text, 76),
    "base64 in short lines": lambda text: in_lines(text, 20),
    "base64 in lines of windows": lambda text: in_lines(text, 64, "\r\n"),
    "base64 in indented lines": lambda text: in_lines(text, 64, "\n    "),
    "base64 in lines in json": lambda text: in_json(in_lines(text, 64, "\r\n")),
    "base64 in lines in json twice": lambda text: in_json(in_json(in_lines(text, 64))),
}  # fmt: skip


def test_a_known_secret_is_found_in_every_spelling(tally):
    together = Redactor(SECRETS)
    shown = [
        (name, secret[:12], redactor.redact(f"before ({spell(secret)}) after"))
        for secret in SECRETS
        for redactor in (Redactor([secret]), together)
        for name, spell in SPELLINGS.items()
    ]

    found = [leak for leak in shown if "***" not in leak[-1]]
    tally("spellings of secrets", found, len(shown))


FLOODS = [
    "\\",
    "&",
    "&amp;",
    "&#0",
    "%25",
    "\\u0",
    "0",
    "=",
    "'",
    '"',
    "`",
    "a\\",
    "a'",
    "x" * 20 + "\n",
]


def test_no_text_makes_the_search_for_a_secret_slow():
    secrets = ["!a!b!c", "\\a\\b\\c", "%%%%%%%%"]

    for secret in secrets:
        redactor = Redactor([secret])
        with bounded_work():
            for flood in FLOODS:
                redactor.redact(flood * (200_000 // len(flood)))
