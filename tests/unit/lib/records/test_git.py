"""Which commit is checked out, read without git."""

import pytest

from holodeck.lib.records.recorder import checked_out_commit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def repository(tmp_path):
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text(COMMIT + "\n")
    (tmp_path / "agents" / "one").mkdir(parents=True)
    return tmp_path


def test_the_commit_of_a_branch_is_found_from_any_folder_below(repository):
    assert checked_out_commit(repository / "agents" / "one") == COMMIT


def test_a_detached_head_is_the_commit_itself(repository):
    (repository / ".git" / "HEAD").write_text(COMMIT)

    assert checked_out_commit(repository) == COMMIT


def test_a_packed_branch_is_found(repository):
    (repository / ".git" / "refs" / "heads" / "main").unlink()
    (repository / ".git" / "packed-refs").write_text(f"# pack-refs\n{COMMIT} refs/heads/main\n^x\n")

    assert checked_out_commit(repository) == COMMIT


def test_a_linked_working_tree_shares_the_branches(repository):
    own = repository / ".git" / "worktrees" / "one"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main")
    (own / "commondir").write_text("../..\n")
    (repository / "agents" / "one" / ".git").write_text(f"gitdir: {own}\n")

    assert checked_out_commit(repository / "agents" / "one") == COMMIT


@pytest.mark.parametrize("head", [None, "ref: refs/heads/none", b"\xff\xfe"])
def test_what_cannot_be_told_is_none(repository, head):
    file = repository / ".git" / "HEAD"
    file.unlink()
    if head is not None:
        file.write_bytes(head if isinstance(head, bytes) else head.encode())

    assert checked_out_commit(repository) is None
