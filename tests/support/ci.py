"""Reads what a run writes for CI services as these services do."""

import re
from pathlib import Path

import junitparser
from lxml import etree

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).with_name("junit.xsd")))


def read_xml(path):
    text = path.read_bytes()
    SCHEMA.assertValid(etree.fromstring(text))
    return junitparser.JUnitXml.fromstring(text)


def commands(stdout):
    """Return the workflow commands that GitHub would obey, as its runner reads them."""
    token, found = None, []
    for line in stdout.splitlines():
        match = re.match(r"\s*::([^ :]+)(?: ([^:]*))?::(.*)", line)
        if match is None:
            continue
        name, properties, data = match.groups()
        if token is not None:
            token = None if name == token else token
        elif name == "stop-commands":
            token = data
        else:
            found.append((name, properties, data))
    return found, token


_STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e0fff]"
)
_COMMAND = re.compile(
    r"^\s*::[A-Za-z][^\n]*?::"  # GitHub, where a line begins
    r"|(?<![\w:])::[A-Za-z][^\n]*?::"  # so that no line that is broken later begins with it
    r"|##\w*\[",  # GitHub as it was, Azure Pipelines and TeamCity, anywhere
    re.MULTILINE,
)


def obeyed(text):
    """Return what a terminal or a CI service would obey in a log, with what follows it."""
    found = [*_STEERS.finditer(text), *_COMMAND.finditer(text)]
    return [ascii(text[match.start() : match.start() + 30]) for match in found]
