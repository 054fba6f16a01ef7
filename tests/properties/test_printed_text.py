"""Whatever a text contains: printed, no terminal and no CI service obeys it, and data stay data."""

import json
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.support.text import inert, inert_but_colored, inert_json, inert_xml
from support.ci import obeyed
from support.payloads import COMMANDS, CONTROLS

PIECES = ["::", ":", "#", "[", "\\", "\n", "\r\n", " ", "\t", "error", "a", "7", "]", "é", "\xa0"]
TEXT = st.lists(st.sampled_from([*COMMANDS, *CONTROLS, *PIECES]) | st.text(max_size=5)).map("".join)

PLAIN = TEXT.map(lambda text: text.encode("utf-8", "ignore").decode())


@given(TEXT)
def test_nothing_in_a_printed_text_is_obeyed(text):
    assert obeyed(inert(text)) == []
    assert "\n" not in inert(text, keep_newlines=False)
    assert inert(inert(text)) == inert(text)


@given(st.lists(TEXT, max_size=4), st.sampled_from(["\x1b[91m", "\x1b[0m", "\x1b[1;4m"]))
def test_only_colors_of_a_coloured_text_are_obeyed(texts, color):
    shown = inert_but_colored(color.join(texts))

    assert obeyed(shown.replace(color, "\n").replace("\x1b[31m", "\n")) == []


@given(st.dictionaries(PLAIN, PLAIN, max_size=3))
def test_printed_json_says_what_it_said_and_nothing_in_it_is_obeyed(value):
    for is_ascii in (True, False):
        shown = inert_json(json.dumps(value, ensure_ascii=is_ascii))

        assert json.loads(shown) == value
        assert obeyed(shown) == []


@given(TEXT.filter(lambda text: text.isprintable()))
def test_printed_xml_says_what_it_said_and_nothing_in_it_is_obeyed(text):
    shown = inert_xml(f"<a>{escape(text)}</a>")

    assert ET.fromstring(shown).text in (text, None if text == "" else text)
    assert obeyed(shown) == []


def test_yaml_in_double_quotes_says_what_it_said():
    text = "\n".join(COMMANDS)

    shown = inert_json(yaml.safe_dump({"a": text}, default_style='"'))

    assert yaml.safe_load(shown) == {"a": text}
    assert obeyed(shown) == []


@pytest.mark.parametrize(
    "text",
    ["std::vector<std::string>", "agent.yaml::greets", "a[1::2]; b[::3]", "## [1.0]", "#[derive]"],
)
def test_what_only_looks_like_a_command_stays(text):
    assert inert(text) == text
