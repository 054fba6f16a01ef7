"""YAML values, the limits that bombs meet, and places."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.config.yaml.nodes import MAX_DEPTH
from holodeck.config.yaml.source import Origin, Source
from holodeck.errors import ConfigError


def load(text):
    return Source.of(text, "agent.yaml").data()


def refusal(text):
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("12", 12),
        ("-3", -3),
        ("012", 12),
        ("0x1f", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("off", "off"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!int 12", 12),
        ("=", "="),
        ("[1, two]", [1, "two"]),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_plain_values_mean_what_yaml_1_2_says(written, meant):
    assert load(f"key: {written}") == {"key": meant}


@pytest.mark.parametrize("key", ["on", "yes", "12", "1.5", "null", "2024-01-01", "true"])
def test_keys_are_text(key):
    assert load(f"{key}: 1") == {key: 1}


def test_a_key_written_twice_is_refused_with_both_places():
    text = "name: a\nmodel:\n  provider: local\n  provider: openai\n"

    assert refusal(text) == (
        "agent.yaml:4:3: duplicate key 'provider', first on line 3, column 3; remove one of them"
    )


def test_a_key_written_twice_is_refused_in_a_list_of_mappings():
    assert "agent.yaml:3:5" in refusal("cases:\n  - input: a\n    input: b\n")


def test_an_alias_repeats_its_anchor():
    text = "shared: &m [{metric: bleu}]\na: *m\nb: *m\n"

    assert load(text)["b"] == [{"metric": "bleu"}]


def test_a_merge_key_fills_what_is_not_written():
    text = "base: &b {x: 1, y: 2}\nother: &c {z: 3}\nown: {<<: [*b, *c], y: 9}\n"

    assert load(text)["own"] == {"y": 9, "x": 1, "z": 3}


def test_a_thousand_cases_may_share_their_metrics():
    cases = "".join(f"  - {{input: say {i}, evaluations: *m}}\n" for i in range(3000))

    assert len(load(f"shared: &m [{{metric: bleu}}]\ncases:\n{cases}")["cases"]) == 3000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: *nothing", "agent.yaml:1:4: unknown alias *nothing; no '&nothing' above"),
        ("a: &a [*a]", "agent.yaml:1:8: the alias *a contains itself"),
        ("a: !!python/object:os.system x", "agent.yaml:1:4: the tag '!!python/object:os.system'"),
        ("a: !!binary x", "the tag '!!binary' is not allowed"),
        ("a: !!timestamp 2024-01-01", "the tag '!!timestamp' is not allowed"),
        ("a: !!set {x}", "the tag '!!set' is not allowed"),
        ("? [a, b]\n: 1", "agent.yaml:1:3: a key must be text, not a list or mapping"),
        ("a: &l [1]\n*l : 1", "a key must be text"),
        ("a: 1\n---\nb: 2", "agent.yaml:2:1: a second document begins here"),
        ("- a\n- b", "agent.yaml:1:1: found a list; the file must be a mapping"),
        ("just text", "agent.yaml:1:1: found a single value; the file must be a mapping"),
        ("", "agent.yaml: the file is empty"),
        ("# only a comment\n", "agent.yaml: the file is empty"),
        ("null", "agent.yaml: the file is empty"),
        (f"a: {'9' * 5000}", "agent.yaml:1:4: a number of 5000 digits is too long"),
        (f"a: 0x{'f' * 4998}", "agent.yaml:1:4: a number of 5000 digits is too long"),
        (f"a: 0o{'7' * 4998}", "agent.yaml:1:4: a number of 5000 digits is too long"),
        (f"? {'k' * 5000}\n: 1", "agent.yaml:1:3: a key of 5000 characters; 1024 are allowed"),
    ],
)
def test_what_is_not_a_plain_mapping_is_refused(text, message):
    assert refusal(text).startswith(message) or message in refusal(text)


@pytest.mark.parametrize("opening", ["[", "{a: "])
def test_ten_thousand_levels_are_refused(opening):
    assert f"nested more than {MAX_DEPTH} levels deep" in refusal("a: " + opening * 10_000)


def test_block_lists_of_ten_thousand_levels_are_refused():
    assert f"nested more than {MAX_DEPTH} levels" in refusal("a:\n  " + "- " * 10_000 + "x")


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_any_text_loads_or_is_refused_with_a_config_error(text):
    try:
        data = load(text)
    except ConfigError as error:
        assert error.field.startswith("agent.yaml")  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(data, dict)


def test_places_count_lines_and_columns_from_one():
    source = Source.of("name: x\ntest_cases:\n  - input: a\n    name: b\n", "agent.yaml")

    assert source.location(("test_cases", 0, "name")) == "agent.yaml:4:11"
    assert Origin(source, ("test_cases", 0, "name")).key_location == "agent.yaml:4:5"
    assert source.location(("test_cases", 0)) == "agent.yaml:3:5"
    assert source.location(("test_cases", 7, "nothing")) == "agent.yaml:3:3"
