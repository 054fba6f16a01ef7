"""The file of a recording: small, stable, and an error once it was changed."""

import json
from dataclasses import replace

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.recordings.entries import (
    RecordedExchange,
    SecretInRecording,
    read_entries,
    write_entries,
)
from holodeck.lib.secrets.redact import Redactor


def entry(key, *texts, after=0, participant="agent", **fields):
    messages = [{"role": "user", "content": text} for text in texts]
    body = {"model": "m", "tools": [{"name": "look"}], "messages": messages, **fields}
    request = {"path": "POST /chat/completions", "body": body}
    return RecordedExchange(
        participant, key, request, {"status": 200, "json": {"text": key}}, after
    )


ENTRIES = [
    entry("a", "hi"),
    entry("b", "hi", "it is 7", after=1),
    entry("c", "another", after=2),
    entry("d", "hi", "it is 7", "so?", after=3, seed=1),
    RecordedExchange("tool", "e", {"path": "look", "body": {"id": 7}}, {"result": 7}),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "case.json"


def test_what_is_written_is_read_again(path):
    write_entries(path, {"case": "greets"}, ENTRIES, Redactor())

    about, entries = read_entries(path)

    assert about == {"case": "greets", "format": 1}
    assert entries == ENTRIES


def test_a_message_is_written_once(path):
    write_entries(path, {}, ENTRIES, Redactor())

    text = path.read_text()

    assert text.count('"it is 7"') == 1
    assert text.count('"look"') == 3  # the tool, the same again after another start, and its call


def test_the_order_in_which_answers_came_does_not_change_the_file(path, tmp_path):
    at_once = [entry("x", "one"), entry("y", "two"), entry("z", "three", after=2)]
    write_entries(path, {}, at_once, Redactor())
    write_entries(tmp_path / "other.json", {}, at_once[::-1], Redactor())

    assert path.read_bytes() == (tmp_path / "other.json").read_bytes()


def test_a_missing_file_has_no_entries(path):
    assert read_entries(path) == ({}, [])


def test_a_file_in_which_a_secret_stands_is_not_written(path):
    secret = "correct-horse-battery-1"
    leaking = replace(entry("a", "hi"), response={"status": 200, "json": {secret: 1}})

    with pytest.raises(SecretInRecording):
        write_entries(path, {}, [leaking], Redactor([secret]))

    assert not path.exists()


def change_answer(content):
    content["entries"][0]["response"]["json"]["text"] = "other"


def swap_answers(content):
    first, second = content["entries"][:2]
    first["response"], second["response"] = second["response"], first["response"]


def delete_entry(content):
    del content["entries"][1]


def change_key(content):
    content["entries"][0]["key"] = "0" * 64


def change_case(content):
    content["about"]["case"] = "another"


def remove_checksum(content):
    del content["sha256"]


@pytest.mark.parametrize(
    "tamper",
    [change_answer, swap_answers, delete_entry, change_key, change_case, remove_checksum],
)
def test_a_changed_file_is_an_error(path, tamper):
    write_entries(path, {"case": "greets"}, ENTRIES, Redactor())
    content = json.loads(path.read_text())
    tamper(content)
    path.write_text(json.dumps(content))

    with pytest.raises(ConfigError, match="was changed since it was recorded"):
        read_entries(path)


def test_another_layout_of_the_same_content_is_no_change(path):
    write_entries(path, {}, ENTRIES, Redactor())
    path.write_text(json.dumps(json.loads(path.read_text())))

    assert read_entries(path)[1] == ENTRIES


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"a": 1, "a": 2}', "[" * 100_000])
def test_a_file_that_is_no_recording_is_an_error(path, text):
    path.write_text(text)

    with pytest.raises(ConfigError, match="record it again with --record all"):
        read_entries(path)
