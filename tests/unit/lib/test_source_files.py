"""Whose a file is, also where it is reached through a link."""

import sysconfig

import pytest

from holodeck.lib.support.source_files import display_code_path, is_users_file


@pytest.fixture
def linked(tmp_path, monkeypatch):
    """A module of the standard library that is a link, as Debian's `sitecustomize` is."""
    standard, elsewhere = tmp_path / "lib", tmp_path / "etc"
    for folder in (standard, elsewhere):
        folder.mkdir()
    (elsewhere / "sitecustomize.py").touch()
    link = standard / "sitecustomize.py"
    link.symlink_to(elsewhere / "sitecustomize.py")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(standard))
    return link


def test_a_linked_module_of_the_standard_library_is_not_the_users(linked):
    assert not is_users_file(str(linked))
    assert is_users_file(str(linked.resolve()))
    assert display_code_path(str(linked)) == "sitecustomize.py"


def test_a_linked_file_of_the_working_directory_is_shown_as_it_is_there(linked, monkeypatch):
    project = linked.parent.parent / "project"
    project.mkdir()
    (project / "tools.py").symlink_to(linked.resolve())
    monkeypatch.chdir(project)

    assert display_code_path(str(project / "tools.py")) == "tools.py"
