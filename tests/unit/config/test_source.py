"""Files that are no YAML, are too much, or are a trap."""

import os
import resource
import subprocess
import sys
import textwrap

import pytest

from holodeck import errors
from holodeck.config.yaml.source import MAX_BYTES, Source
from holodeck.errors import ConfigError


def refusal(path):
    with pytest.raises(ConfigError) as caught:
        Source.read(path, path.name)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"\xff\xfename: x",
            "bad.yaml:1:1: the file has a byte order mark but is not valid UTF-16",
        ),
        (b"\xef\xbb\xbfa: \xff", "bad.yaml:1:1: the file has a byte order mark but is not"),
        (b"name: x\nauthor: J\xf6rg\n", "bad.yaml:2:10: byte 0xf6 is not UTF-8"),
        (b"name: x\nb: a\x00b\n", "bad.yaml:2:5: the control character U+0000"),
        (b"name: x\nb: a\x1b[2Jb\n", "bad.yaml:2:5: the control character U+001B"),
        (b"name: x\nmodel:\n\tprovider: local\n", "bad.yaml:3:1: tab in the indentation"),
        (b"name: a: b\n", "bad.yaml:1:8: unexpected ':'"),
        (b"name: 'x\nb: 1\n", "bad.yaml:3:1: missing closing quotation mark (it begins on line 1)"),
        (b"a: [1, 2\nb: 3\n", "bad.yaml:2:2: missing ']' at the end of a list (it begins on"),
        (b"a: @x\n", "bad.yaml:1:4: a value cannot begin with '@'; put it in quotes"),
        (b'a: "\\q"\n', "bad.yaml:1:5: unknown escape sequence in double quotes"),
        (b"a: 1\n- b\n", "bad.yaml:2:1: this line does not continue the mapping above it"),
        (b"a: !x!y 1\n", "bad.yaml:1:4: tags ('!name') are not allowed"),
    ],
    ids=lambda value: value[:25] if isinstance(value, str) else "",
)
def test_what_is_no_yaml_is_one_error_with_its_place(tmp_path, content, message):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)

    assert refusal(path).startswith(message)


def test_the_line_that_is_wrong_is_shown(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\ninput: say: hello\n")

    assert refusal(path).endswith("\n    input: say: hello")


@pytest.mark.parametrize(
    "line", ["api_key: sk-1234: x", "  Authorization: 'Bearer sk-1234': x", "a: {token: sk-1234"]
)
def test_a_wrong_line_that_may_hold_a_secret_is_not_shown(tmp_path, line):
    path = tmp_path / "bad.yaml"
    path.write_text(f"name: x\n{line}\n")

    assert "sk-1234" not in refusal(path)


def test_a_missing_file_is_its_own_error(tmp_path):
    with pytest.raises(errors.FileNotFoundError, match=r"cannot be read: no such file"):
        Source.read(tmp_path / "none.yaml")


def test_a_fifo_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")

    assert refusal(tmp_path / "pipe.yaml") == "pipe.yaml: is not a regular file"


def test_a_device_is_refused(tmp_path):
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")

    assert refusal(tmp_path / "zero.yaml") == "zero.yaml: is not a regular file"


def test_a_hundred_megabytes_are_refused_at_once(tmp_path):
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(5 * MAX_BYTES)

    assert refusal(path) == "big.yaml: is larger than 20 MB; split it or move the data elsewhere"


LEVELS = ["a: &a [x, x, x, x, x, x, x, x, x]"] + [
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
]
PLACES = {
    "unknown key": "boom: *i",
    "input": "test_cases: [{input: *i}]",
    "metadata": "test_cases: [{input: x, metadata: *i}]",
    "tool schema": "tools: [{type: function, name: t, file: t.py, function: t, parameters: *i}]",
    "response_format": "response_format: {enum: *i}",
    "merge keys": "model: {<<: {x: *i}}",
}
CHILD = """\
    import resource, sys
    from holodeck.config.loader import ConfigLoader
    from holodeck.errors import ConfigError
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        ConfigLoader().load_agent_yaml(sys.argv[1])
    except ConfigError as error:
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used
        print(grown // 1024, error)
"""


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_bomb_of_aliases_costs_nothing(tmp_path, place):
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join([*LEVELS, "name: x", place]))
    limit = 1_000_000_000

    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(path)],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )

    megabytes, message = child.stdout.split(maxsplit=1)
    assert "more than 1000 alias expansions" in message
    assert int(megabytes) < 20


def test_one_large_anchor_used_a_thousand_times_is_refused(tmp_path):
    path = tmp_path / "bomb.yaml"
    path.write_text(f"a: &a [{'x, ' * 5000}x]\nb: [{'*a, ' * 1000}*a]\n")

    assert "aliases expand to more than 100000 values" in refusal(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_yaml_is_read_in_every_encoding_that_its_byte_order_mark_names(tmp_path, encoding):
    path = tmp_path / "good.yaml"
    path.write_bytes("name: Jörg 🙂\n".encode(encoding))

    assert Source.read(path).data() == {"name": "Jörg 🙂"}


def test_separators_of_unicode_end_neither_comments_nor_values(tmp_path):
    text = "a: x # one\u2028b: 2\nc: one\u2029two # \x85\nd: 'e\u2028f'\n"
    text += "g: |\n  h\u2028i\nj\u2028: k\n"
    source = Source.of(text, "good.yaml")

    wanted = {"a": "x", "c": "one\u2029two", "d": "e\u2028f", "g": "h\u2028i\n", "j\u2028": "k"}
    assert source.data() == wanted
    assert source.location(("g",)) == "good.yaml:4:4"
