"""What the environment says about the machine."""

from pathlib import Path

import pytest

from holodeck.config.environment import cache_dir, hub_url, offline
from holodeck.errors import ConfigError


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HOLODECK_CACHE_DIR": "/big/disk"}, Path("/big/disk")),
        ({"HOLODECK_CACHE_DIR": "here"}, Path.cwd() / "here"),
        ({"HOLODECK_CACHE_DIR": "", "XDG_CACHE_HOME": "/xdg"}, Path("/xdg/holodeck")),
    ],
)
def test_the_cache_lies_where_the_user_wants_it(monkeypatch, variables, folder):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert cache_dir() == folder


@pytest.mark.parametrize(
    ("value", "off"),
    [("1", True), ("TRUE", True), (" yes ", True), ("on", True), ("0", False), ("False", False),
     ("no", False), ("off", False), ("", False)],
)  # fmt: skip
def test_downloads_are_off_when_a_yes_says_so(monkeypatch, value, off):
    monkeypatch.setenv("HOLODECK_OFFLINE", value)

    assert offline() is off


def test_an_unclear_answer_names_the_variable(monkeypatch):
    monkeypatch.setenv("HOLODECK_OFFLINE", "2")

    with pytest.raises(ConfigError, match="HOLODECK_OFFLINE: '2' is neither yes nor no"):
        offline()


def test_the_hub_is_the_public_one_unless_named(monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert hub_url() is None

    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    assert hub_url() == "https://mirror.example"
