"""What the environment says about the machine."""

from pathlib import Path

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.support.environment import cache_dir, hub_url, offline, proxy_for


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

    with pytest.raises(ConfigError, match="HOLODECK_OFFLINE: found '2'; expected 1 or 0"):
        offline()


def test_the_hub_is_the_public_one_unless_named(monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert hub_url() is None

    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    assert hub_url() == "https://mirror.example"


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, "https://a.example/v1", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://a.example/v1", "http://p:1"),
        ({"https_proxy": "p:1"}, "https://a.example/v1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://a.example/v1", None),
        ({"ALL_PROXY": "http://p:1"}, "http://a.example/v1", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "a.example"}, "http://a.example:8/v1", None),
    ],
)
def test_the_proxy_is_the_one_that_everybody_else_uses(monkeypatch, variables, url, proxy):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert proxy_for(url) == proxy


def test_a_proxy_of_another_kind_is_refused(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://p:1")
    monkeypatch.setenv("https_proxy", "socks5://p:1")

    with pytest.raises(ConfigError, match="begin with http://"):
        proxy_for("https://a.example")
