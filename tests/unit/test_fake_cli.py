"""The helpers that run the command line, tried on a stand-in for it."""

import os
import select
import signal
import sys
from pathlib import Path

import pytest

from fakes import clean_environment, render, run_cli, run_in_pty, start_cli, start_in_pty

STAND_IN = """
import os, sys, time
what = sys.argv[1] if len(sys.argv) > 1 else ""
if what == "ask":
    print("got", sys.stdin.read())
elif what == "wait":
    try:
        print("waiting", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        print("interrupted")
        sys.exit(130)
elif what == "spin":
    sys.stdout.write("working |\\rworking /\\r\\x1b[2K\\x1b[32mdone\\x1b[0m\\n")
    print(sys.stdout.isatty(), os.get_terminal_size().columns)
    sys.exit(3)
else:
    print("out", sys.argv[1:], sys.stdout.isatty(), os.getcwd() in sys.path)
    print("err", file=sys.stderr)
    sys.exit(7)
"""


@pytest.fixture
def here(tmp_path):
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def env(tmp_path):
    """Puts a package of ours before the real holodeck."""
    package = tmp_path / "lib" / "holodeck"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(STAND_IN)
    return {"PYTHONPATH": str(tmp_path / "lib")}


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["usual", "ignored"])
def signal_handling(request):
    """How this process treats SIGINT, which children would inherit."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_run_gives_code_and_both_streams(here, env):
    ran = run_cli("test", here / "x.yaml", cwd=here, env=env)

    assert ran.code == 7
    assert ran.stdout == f"out ['test', '{here}/x.yaml'] False False\n"
    assert ran.stderr == "err\n"
    assert list(here.iterdir()) == []


def test_a_run_can_be_given_input(here, env):
    assert run_cli("ask", cwd=here, env=env, stdin="grüße").stdout == "got grüße\n"


def test_a_run_that_does_not_end_fails_the_test_with_its_output(here, env):
    with start_cli("wait", cwd=here, env=env) as run:
        select.select([run.process.stdout], [], [])
        with pytest.raises(AssertionError, match=r"still running after 0.1 s\nwaiting"):
            run.finish(timeout=0.1)


def test_a_run_can_be_interrupted(here, env, signal_handling):
    with start_cli("wait", cwd=here, env=env) as run:
        assert run.process.stdout.readline() == b"waiting\n"
        run.interrupt()
        ran = run.finish()

    assert (ran.code, ran.stdout) == (130, "interrupted\n")


def test_a_run_left_running_is_ended(here, env):
    with start_cli("wait", cwd=here, env=env) as run:
        pass

    assert run.process.returncode == -9


def test_a_run_in_a_terminal_sees_its_size_and_shows_its_screen(here, env):
    ran = run_in_pty("spin", cwd=here, env=env, cols=100)

    assert ran.code == 3
    assert b"\x1b[32mdone" in ran.raw
    assert ran.screen == "done\nTrue 100"


def test_a_run_in_a_terminal_can_be_interrupted(here, env):
    with start_in_pty("wait", cwd=here, env=env) as run:
        run.read_until("waiting")
        run.interrupt()
        ran = run.finish()

    assert ran.code == 130
    assert "interrupted" in ran.screen


def test_text_that_never_comes_fails_the_test_with_what_came(here, env):
    with start_in_pty("spin", cwd=here, env=env) as run:
        with pytest.raises(AssertionError, match=r"'nope' never came:\n(?s:.*)done"):
            run.read_until("nope")
        run.finish()


def test_children_get_a_clean_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "real")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example")
    monkeypatch.setenv("HOLODECK_CACHE_DIR", "/cache")

    env = clean_environment(tmp_path, {"EXTRA": "1", "LANG": None})

    assert "OPENAI_API_KEY" not in env
    assert "LANG" not in env
    assert env["PATH"] == os.environ["PATH"]
    assert env["PIP_INDEX_URL"] == "https://index.example"
    assert (env["HOLODECK_CACHE_DIR"], env["EXTRA"], env["HOME"]) == ("/cache", "1", str(tmp_path))


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("a\r\nb\r\n", "a\nb"),
        ("abc\rX", "Xbc"),
        ("one\r\ntwo\r\n\x1b[2A\x1b[2KONE", "ONE\ntwo"),
        ("abc\x1b[2D\x1b[K", "a"),
        ("a\r\nb\x1b[1A\x1b[0Jx", "ax"),
        ("\x1b]0;title\x07\x1b[?25lhid\x1b[?25h", "hid"),
        ("\x1b[38;5;9mred\x1b[m", "red"),
        ("0123456789abc", "0123456789\nabc"),
        ("全角\x1b[3Gx", "全x"),
        ("1\r\n2\r\n3\r\n4\r\n5\x1b[H>", "1\n2\n>\n4\n5"),
        ("\x1b[3;4Hx", "\n\n   x"),
    ],
)
def test_a_screen_shows_what_a_person_sees(written, seen):
    assert render(written.encode(), 10, 3) == seen


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_terminal_leaves_no_open_files(here, env):
    before = open_files()
    run_in_pty("spin", cwd=here, env=env)

    assert open_files() == before
