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
