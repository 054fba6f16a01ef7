import os

import pytest

from holodeck import errors
from holodeck.lib.support.safe_paths import allow_outside, file_inside


def test_a_relative_path_starts_from_the_folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").touch()

    assert file_inside("a/notes.txt", tmp_path) == (tmp_path / "a" / "notes.txt").resolve()


def test_a_missing_file_names_the_nearest_one(tmp_path):
    (tmp_path / "weather.py").touch()

    with pytest.raises(errors.FileNotFoundError, match=r"did you mean 'weather\.py'"):
        file_inside("wether.py", tmp_path)


@pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "{absolute}"])
def test_a_file_outside_of_the_folder_is_refused(tmp_path, path):
    secret = tmp_path / "secret.txt"
    secret.touch()
    inside = tmp_path / "agent"
    inside.mkdir()
    (inside / "link.txt").symlink_to(secret)

    with pytest.raises(errors.ConfigError, match="outside of the agent's folder"):
        file_inside(path.format(absolute=secret), inside)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_only_a_regular_file_is_a_file(tmp_path, make):
    make(tmp_path / "thing")

    with pytest.raises(errors.ConfigError, match="is not a regular file"):
        file_inside("thing", tmp_path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000], ids=["NUL", "too long"])
def test_a_path_that_no_file_can_have_is_refused(tmp_path, path):
    with pytest.raises(errors.ConfigError, match="is not a usable path"):
        file_inside(path, tmp_path)


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    with pytest.raises(errors.ConfigError):
        file_inside("loop", tmp_path)


@pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "{absolute}"])
def test_a_file_outside_is_found_where_that_is_allowed(tmp_path, path):
    secret = tmp_path / "secret.txt"
    secret.touch()
    inside = tmp_path / "agent"
    inside.mkdir()
    (inside / "link.txt").symlink_to(secret)

    with allow_outside():
        assert file_inside(path.format(absolute=secret), inside) == secret.resolve()
    with pytest.raises(errors.ConfigError, match="--allow-outside"):
        file_inside(path.format(absolute=secret), inside)


def test_a_pipe_is_refused_even_where_leaving_is_allowed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "agent").mkdir()

    with allow_outside(), pytest.raises(errors.ConfigError, match="is not a regular file"):
        file_inside("../pipe", tmp_path / "agent")
