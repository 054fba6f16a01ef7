"""Any script in names and files: nothing breaks, nothing is changed."""

import json
import unicodedata

import pytest

from fakes import case

NAMES = {
    "right to left": "\u0634\u0643\u0631\u0627",
    "a change of direction": "a\u202eb\u2066c",
    "combining": "e\u0301o\u0308",
    "composed": "\u00e9\u00f6",
    "joined": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "outside the first plane": "\U00020000\U0001d518",
    "wide and folded": "\uff2f\ufb01\u00df\u0130\u0131",
    "many marks": "Z" + "\u0300\u0316" * 20,
    "white space": "a\u00a0b\u3000c",
}
BOT = "def answer(message):\n    return message\n"


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_of_any_script_stay_as_they_are(agent_dir, cli, tally, name):
    agent_dir.write(f"{name}/bot.py", BOT)
    agent_dir.write(f"{name}/{name}.txt", f"in {name}")
    read = case(name, name, files=[{"path": f"{name}.txt", "type": "text"}], contains=f"in {name}")
    written = agent_dir.write_agent(
        name=name, model=None, instructions=None, backend="bot:answer", test_cases=[read]
    )
    written = written.rename(agent_dir.path / name / f"{name}.yaml")

    ran = cli.run(
        "test", str(written), "-o", f"{name}.json", "-o", f"{name}.md", cwd=agent_dir.path
    )

    assert ran.code == 0, ran.stderr + ran.stdout
    report = json.loads((agent_dir.path / f"{name}.json").read_text())
    [result] = report["results"]
    found = [report["agent_name"], result["test_name"], result["test_input"]]
    assert (agent_dir.path / f"{name}.md").is_file()
    tally("names changed", [one for one in found if one != name], len(found))


@pytest.mark.parametrize("check", ["contains", "exact_match"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_accent_is_the_same_however_it_is_written(agent_dir, cli, check, form):
    """As docs/guide/metrics.md says."""
    agent_dir.write("bot.py", BOT)
    value = unicodedata.normalize(form, "un \u00e9t\u00e9")
    other = unicodedata.normalize("NFD" if form == "NFC" else "NFC", value)
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend="bot:answer",
        test_cases=[case("c", other, evaluations=[{"metric": check, "value": value}])],
    )

    assert cli.run("test", cwd=agent_dir.path).code == 0


def test_a_file_is_found_only_by_the_form_of_its_name(agent_dir, cli):
    """Systems differ in whether both forms mean one file, so none is tried for the other."""
    agent_dir.write("\u00e9t\u00e9.txt", "hi")
    agent_dir.write_agent(instructions={"file": "e\u0301te\u0301.txt"})

    ran = cli.run("validate", cwd=agent_dir.path)

    assert (ran.code, "\u00e9t\u00e9.txt" in ran.stdout) == (2, True)
