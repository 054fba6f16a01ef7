"""JSON that the command writes can be read whatever is in it, and has it as it was."""

import json

import yaml

from fakes import case
from support.payloads import PAYLOADS

EVERYTHING = "\n".join(PAYLOADS).encode("utf-8", "ignore").decode().replace("\0", "")
BOT = """
def answer(message):
    return message + "\\udc80\\0"

def score(observation):
    raise ValueError(observation.reply)
"""


def test_what_is_wrong_is_told_in_json_whatever_it_is(tmp_path, cli, tally):
    keys = {payload.encode("utf-8", "ignore").decode().replace("\0", ""): 1 for payload in PAYLOADS}
    expected = {"input": "x", "expected_tools": [EVERYTHING, "\x9b\x7f\u202e"]}
    model = {"provider": "openai", "name": "m"}
    right = {"model": model, "instructions": {"inline": "x"}}
    wrong = [keys, {"model": EVERYTHING}, right | {"test_cases": [expected]}]
    for number, agent in enumerate(wrong):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump({"name": "x"} | agent))

        ran = cli.run("validate", "--json", f"{number}.yaml", cwd=tmp_path)

        assert ran.code == 2
        tally("broken JSON", broken(ran.stdout), 1)


def broken(text):
    try:
        json.loads(text)
    except ValueError as error:
        return [str(error)]
    return []


def test_a_run_of_any_text_is_told_in_json_by_every_command(agent_dir, cli, tally):
    agent_dir.write("bot.py", BOT)
    agent_dir.write_agent(
        name=EVERYTHING,
        model=None,
        instructions=None,
        backend="bot:answer",
        evaluations={"metrics": [{"metric": "bot:score"}]},
        test_cases=[case(EVERYTHING, EVERYTHING)],
    )

    cli.run("test", "-o", "r.json", cwd=agent_dir.path)

    [record] = agent_dir.path.glob(".holodeck/runs/*/run.jsonl")
    written = [
        (agent_dir.path / "r.json").read_text(),
        *record.read_text().removesuffix("\n").split("\n"),
        cli.run("report", "--format", "json", cwd=agent_dir.path).stdout,
        cli.run("runs", "list", "--json", cwd=agent_dir.path).stdout,
        cli.run("validate", "--json", cwd=agent_dir.path).stdout,
    ]
    tally("broken JSON", [why for text in written for why in broken(text)], len(written))
    [result] = json.loads(written[0])["results"]
    assert (result["test_name"], result["agent_response"]) == (EVERYTHING, EVERYTHING + "\udc80\0")
