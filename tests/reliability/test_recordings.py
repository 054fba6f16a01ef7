"""What recordings hold against: tampering, secrets, and many cases at once."""

import json
import shutil

import pytest
import yaml

import holodeck
from holodeck.errors import HoloDeckError
from holodeck.models.results.outcome import Outcome
from support.folder import case
from support.frameworks import TOOL, script

JUDGED = json.dumps({"c1": {"reasoning": "seen", "status": "passed"}, "decision": "verdict"})
TOOLS = '''
def lookup_order(order_id: str) -> dict:
    """Say where an order is."""
    return {"order": order_id, "status": "shipped"}
'''
CASES = [
    case("orders", "Where are order 7 and order 8?", contains="shipped", expected_tools=[TOOL]),
    case("judged", "Where is order 9?", contains="shipped", criteria=["is kind"]),
]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A folder with the recordings of an agent with a tool and a judge."""
    from fakes import AgentFolder, FakeOpenAI

    path = tmp_path_factory.mktemp("original")
    with FakeOpenAI(script) as server:
        server.when("# Criteria", JUDGED)
        folder = AgentFolder(path, server)
        folder.write("tools.py", TOOLS)
        tool = {"type": "function", "name": TOOL, "file": "tools.py", "function": TOOL}
        folder.write_agent(tools=[tool], test_cases=CASES, recordings={"max_age_days": 3650})
        recorded = folder.run("test", "--record")
        assert recorded.code == 0, recorded.stdout
    return folder


def change_response(content, at):
    content["entries"][at]["response"] = {"status": 200, "type": "text/plain", "text": "shipped"}


def delete_entry(content, at):
    del content["entries"][at]


def change_key(content, at):
    content["entries"][at]["key"] = "0" * 64


def change_request(content, at):
    content["entries"][at]["request"]["path"] += "x"


def change_participant(content, at):
    content["entries"][at]["participant"] = "embeddings"


def swap_responses(content, at):
    entries = content["entries"]
    other = entries[(at + 1) % len(entries)]
    entries[at]["response"], other["response"] = other["response"], entries[at]["response"]


ENTRIES = {"orders": 4, "judged": 4}
CHANGES = (change_response, delete_entry, change_key, change_request, change_participant)
CHANGES += (swap_responses,)
IN_FILES = [
    (name, change, at)
    for name, count in ENTRIES.items()
    for at in range(count)
    for change in CHANGES
]


def replayed(original, folder, change):
    """The report of a replay of a copy after a change; None if it is refused."""
    copy = folder / "copy"
    shutil.copytree(original.path, copy)
    change(copy)
    try:
        return holodeck.run(copy / "agent.yaml", recording="replay")
    except HoloDeckError:
        return None


def test_the_recordings_themselves_are_green(original, tmp_path):
    assert replayed(original, tmp_path, lambda _: None).passed


@pytest.mark.parametrize(("name", "change", "at"), IN_FILES)
def test_a_changed_recording_is_never_green(original, tmp_path, name, change, at):
    def tamper(copy):
        file = copy / "recordings" / "agent" / f"{name}.json"
        content = json.loads(file.read_text())
        assert len(content["entries"]) == ENTRIES[name]
        change(content, at)
        file.write_text(json.dumps(content))

    report = replayed(original, tmp_path, tamper)

    outcomes = {result.test_name: result.outcome for result in report.results}
    assert outcomes.pop(name) is Outcome.METRIC_ERROR
    assert [*outcomes.values()] == [Outcome.PASSED]


IN_THE_AGENT = {
    "instructions": lambda agent: agent.update(instructions={"inline": "Be rude."}),
    "model": lambda agent: agent["model"].update(name="other"),
    "temperature": lambda agent: agent["model"].update(temperature=0.9),
    "max_tokens": lambda agent: agent["model"].update(max_tokens=5),
    "top_p": lambda agent: agent["model"].update(top_p=0.1),
    "input": lambda agent: agent["test_cases"][0].update(input="Where are order 8 and order 7?"),
    "criteria": lambda agent: agent["test_cases"][1].update(criteria=["is rude"]),
    "name of a case": lambda agent: agent["test_cases"][0].update(name="other"),
    "name of the tool": lambda agent: agent["tools"][0].update(name="other"),
    "description of the tool": lambda agent: agent["tools"][0].update(description="Other."),
    "no tools": lambda agent: agent.pop("tools"),
    "response format": lambda agent: agent.update(response_format={"type": "object"}),
    "repetitions": lambda agent: agent["test_cases"][0].update(repeat=2),
    "a further case": lambda agent: agent["test_cases"].append(case("new", "hi", contains="hi")),
}


@pytest.mark.parametrize("change", IN_THE_AGENT.values(), ids=IN_THE_AGENT)
def test_another_agent_is_never_green(original, tmp_path, change):
    def edit(copy):
        file = copy / "agent.yaml"
        agent = yaml.safe_load(file.read_text())
        change(agent)
        file.write_text(yaml.safe_dump(agent))

    report = replayed(original, tmp_path, edit)

    assert report is None or not report.passed


def test_another_schema_of_a_tool_is_never_green(original, tmp_path):
    def edit(copy):
        file = copy / "tools.py"
        file.write_text(file.read_text().replace("order_id: str)", "order_id: str, now: bool)"))

    report = replayed(original, tmp_path, edit)

    assert {result.outcome for result in report.results} == {Outcome.METRIC_ERROR}


PLACES = ("instructions", "input", "tool", "answer", "variable")
FORMATS = (
    "sk-proj-{n}abcdefghijklmnopqrstuvwx{n}",
    "sk-ant-api03-{n}abcdefghijklmnopqrstuv{n}",
    "ghp_{n}abcdefghijklmnopqrstuvwxyz0123{n}",
    "github_pat_{n}ABCDEFGHIJ0123456789_{n}",
    "xoxb-{n}23456789012-abcdefghijkl{n}",
    "AKIA{n}ABCDEFGHIJ{n}",
    "glpat-{n}abcdefghijklmnop{n}",
    "npm_{n}abcdefghijklmnopqrstuvwxyz012345{n}",
    "AIza{n}abcdefghijklmnopqrstuvwxyz01234{n}",
    "hf_{n}abcdefghijklmnopqrstuvwxyzABCD{n}",
)
NAMED = ("SHOP_API_KEY", "DB_PASSWORD", "SESSION_TOKEN", "SIGNING_SECRET", "SMTP_PASSWORD")
NAMED += ("CRM_TOKEN", "VAULT_SECRET", "PAY_API_KEY", "MAIL_PASSWORD", "BOT_TOKEN")
SECRETS = {
    place: [
        *(text.format(n=f"{place_number}{number}X") for number, text in enumerate(FORMATS)),
        *(f"{name.lower()}-{place_number}-horse-battery-7" for name in NAMED),
    ]
    for place_number, place in enumerate(PLACES)
}
"""A hundred secrets: ten of a known format and ten of variables, for each place."""


def test_none_of_a_hundred_secrets_is_in_a_recording(agent_dir):
    texts = {place: " | ".join(secrets) for place, secrets in SECRETS.items()}
    env = {
        f"{place}_{name}".upper(): secrets[len(FORMATS) + number]
        for place, secrets in SECRETS.items()
        for number, name in enumerate(NAMED)
    }
    agent_dir.server.when(
        lambda request: not any(message["role"] == "tool" for message in request.messages),
        tool_calls=[(TOOL, {"order_id": texts["variable"]})],
    )
    agent_dir.server.otherwise(f"It is shipped: {texts['answer']}")
    agent_dir.write(
        "tools.py", f"def lookup_order(order_id: str) -> str:\n    return {texts['tool']!r}\n"
    )
    agent_dir.write_agent(
        tools=[{"type": "function", "name": TOOL, "file": "tools.py", "function": TOOL}],
        instructions={"inline": f"Never say {texts['instructions']}"},
        test_cases=[case("leaks", texts["input"], contains="shipped")],
    )

    recorded = agent_dir.run("test", "--record", env=env)
    replayed = agent_dir.run("test", "--replay", env=env)

    assert (recorded.code, replayed.code) == (0, 0), recorded.stdout + replayed.stdout
    files = [file.read_text() for file in (agent_dir.path / "recordings").rglob("*.json")]
    assert len(files) == 2
    planted = [secret for secrets in SECRETS.values() for secret in secrets]
    assert len(set(planted)) == 100
    assert [secret for secret in planted if any(secret in text for text in files)] == []


def test_five_hundred_cases_are_the_same_however_they_are_replayed(agent_dir):
    cases = [case(f"case {number}", f"Say {number}", contains=f"{number}") for number in range(500)]
    agent_dir.write_agent(backend="chat", test_cases=cases)
    recorded = agent_dir.run("test", "--record", "--workers", "2", "-q")
    assert recorded.code == 0, recorded.stderr
    sent = len(agent_dir.server.requests)
    ways = {"one": ["-j", "1"], "fifty": ["-j", "50"], "workers": ["--workers", "2", "-j", "10"]}

    def results(name, args):
        ran = agent_dir.run("test", "--replay", "-q", "-o", f"{name}.json", *args)
        assert ran.code == 0, ran.stdout
        report = json.loads((agent_dir.path / f"{name}.json").read_text())
        return [
            (result["test_name"], result["agent_response"], result["outcome"], result["recording"])
            for result in report["results"]
        ]

    one, *others = [results(name, args) for name, args in ways.items()]

    assert sent == 500
    assert len(agent_dir.server.requests) == sent
    assert {replay["replayed"] for *_, replay in one} == {1}
    assert others == [one, one]
