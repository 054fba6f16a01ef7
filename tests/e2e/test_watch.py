"""`holodeck test --watch`, as one sits before it."""

import pytest

from fakes import run_cli, start_in_pty

AGENT = """\
name: echo
backend: "bot:answer"
evaluations: {metrics: [{metric: contains, value: hello}]}
test_cases:
  - {name: first, input: hello one}
  - {name: second, input: hello two}
"""


def test_a_saved_file_runs_again_what_it_affects_until_ctrl_c(tmp_path):
    agent, bot = tmp_path / "agent.yaml", tmp_path / "bot.py"
    agent.write_text(AGENT)
    bot.write_text("import parts\n\ndef answer(message):\n    return parts.start + message\n")
    (tmp_path / "parts.py").write_text("start = ''\n")

    with start_in_pty("test", "--watch", cwd=tmp_path, cols=120, rows=120) as run:
        run.read_until("files and folders; press Ctrl-C to stop")
        agent.write_text(AGENT.replace("hello two", "hallo two"))
        run.read_until("1 of 2 results are kept, 1 case runs")
        run.read_until("got 'hallo two'")
        (tmp_path / "parts.py").write_text("start = 'HO '\n")
        run.read_until("changed: parts.py")
        run.read_until("got 'HO hallo two'")
        agent.write_text("name: [")
        run.read_until("Configuration Error: agent.yaml:")
        (tmp_path / "new.yaml").write_text(f"{AGENT}  - {{name: third, input: hello three}}\n")
        (tmp_path / "new.yaml").replace(agent)
        run.read_until("1 of 3 results are kept, 2 cases run")
        run.read_until("3/3 passed (100.0%)")
        run.interrupt()
        ran = run.finish()

    assert ran.code == 130
    assert "Traceback" not in ran.screen


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--resume"], "--watch selects the cases to rerun itself; remove --resume"),
        (["--last-failed"], "cases to rerun itself; remove --last-failed"),
        (["--debug"], "--debug needs a keyboard, which --watch does not pass on"),
        (["--list"], "--list runs nothing; remove --watch"),
        (["agent.yml"], "agent.yml: file not found; did you mean 'agent.yaml'?"),
    ],
    ids=["resume", "last-failed", "debug", "list", "nothing-there"],
)
def test_watching_refuses_what_it_could_not_do(tmp_path, options, told):
    (tmp_path / "agent.yaml").write_text(AGENT)

    ran = run_cli("test", "--watch", *options, cwd=tmp_path)

    assert ran.code == 2
    assert told in ran.stderr
