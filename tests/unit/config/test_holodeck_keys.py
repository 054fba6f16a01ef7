"""Keys of newer files of HoloDeck."""

import pytest

from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError

HEAD = "name: a\nbackend: 'shop:answer'\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("test_cases: [{turns: [{input: hi, turn_config: {a: 1}}]}]", "turns[0].turn_config"),
        ("evaluations: {metrics: [{metric: bleu, response_path: a.b}]}", "response_path"),
        (
            "evaluations: {metrics: [{type: code, grader: 'g:f', response_path: a}]}",
            "response_path",
        ),
        (
            "evaluations: {metrics: [{metric: relevance, response_path: a.b}]}",
            "response_path",
        ),
    ],
)
def test_a_key_of_a_newer_version_is_named_as_one(tmp_path, text, place):
    (tmp_path / "agent.yaml").write_text(f"{HEAD}{text}\n")

    with pytest.raises(ConfigError, match=r"a key of HoloDeck 0\.7") as raised:
        ConfigLoader().load_agent_yaml(tmp_path / "agent.yaml")

    assert place in str(raised.value)
