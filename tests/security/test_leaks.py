"""No secret gets out, whoever repeats it: into a terminal, report, record, events, log or trace."""

import base64
import json
import sys
from urllib.parse import quote

import pytest

from fakes import Reply, case
from support.collector import collector

KEY = "sk-proj-AbCdEfGhIjKlMnOpQrStUvWx+/=&é"[:-1] + "z"
WORD = "correct-horse-battery-staple"
TOKEN = 'to"ken\\with<quotes>&more'

TOOLS = """
import os

def echo(text: str) -> str:
    "Gives back the text, and what the environment holds."
    return f"{text} {dict(os.environ)}"

def broken(text: str) -> str:
    "Raises."
    raise RuntimeError(f"cannot log in with {text} {os.environ['DB_PASSWORD']}")
"""


def forms(secret):
    """How a secret may turn up: as it is, in URLs, JSON, Python, base64."""
    raw = secret.encode()
    inner = base64.b64encode(raw).decode().rstrip("=")[:-1]
    return {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1], inner}


SECRETS = {form for secret in (KEY, WORD, TOKEN) for form in forms(secret)}


def repeat_everything(request):
    """A provider that repeats every secret in whatever it says."""
    said = " ".join([KEY, WORD, TOKEN, quote(KEY, safe=""), json.dumps(TOKEN), repr(TOKEN),
                     base64.b64encode(f"user:{KEY}".encode()).decode(), f"Bearer {KEY}",
                     f"https://user:{WORD}@host/", request.headers["authorization"]])  # fmt: skip
    if "error" in request.prompt:
        return Reply(status=int(request.prompt.split()[1]), content=said)
    if "garbage" in request.prompt:
        return Reply(body=said.encode())
    if "pieces" in request.prompt:
        return Reply(said, fault="drip", drip_s=0)
    if "call" in request.prompt and not request.tool_results:
        names = ("echo", "broken", f"none-{WORD}")
        return Reply(tool_calls=[(name, {"text": said}) for name in names])
    return Reply(said)


# Where the key is written, what is to be shown, and by which way the provider is asked: Semantic
# Kernel takes seconds to import, and -vv shows all that the others do.
@pytest.mark.parametrize(
    ("where", "flags", "backend"),
    [
        ("agent.yaml", ("-vv",), "chat"),
        (".env", ("-vv",), "chat"),
        ("environment", ("-vv",), "chat"),
        ("substituted", ("-vv",), "chat"),
        ("config.yaml", ("-vv",), "chat"),
        ("agent.yaml", (), "chat"),
        ("config.yaml", ("-v",), "chat"),
        ("agent.yaml", ("-vv",), "semantic_kernel"),
        ("environment", (), "semantic_kernel"),
        (".env", ("-v",), "semantic_kernel"),
    ],
    ids=str,
)
def test_no_secret_gets_out(agent_dir, where, flags, backend, tally):
    env = {"DB_PASSWORD": WORD, "SERVICE_TOKEN": TOKEN}
    agent_dir.write("tools.py", TOOLS)
    agent_dir.server.otherwise(repeat_everything)
    keys = {"agent.yaml": KEY, "substituted": "${THE_VALUE}"}
    model = {k: v for k, v in agent_dir.model(api_key=keys.get(where)).items() if v is not None}
    tools = [
        {"type": "function", "name": name, "file": "tools.py", "function": name}
        for name in ("echo", "broken")
    ]
    if where == ".env":
        agent_dir.write(".env", f"OPENAI_API_KEY='{KEY}'\n")
    elif where == "environment":
        env["OPENAI_API_KEY"] = KEY
    elif where == "substituted":
        env["THE_VALUE"] = KEY
    elif where == "config.yaml":
        agent_dir.write("config.yaml", json.dumps({"providers": {"openai": {"api_key": KEY}}}))
    with collector() as traces:
        agent_dir.write_agent(
            backend=backend,
            model=model,
            tools=tools,
            execution={"max_retries": 1, "retry_delay": 0},
            observability={
                "enabled": True,
                "traces": {"capture_content": True},
                "exporters": {
                    "otlp": {"endpoint": traces.url, "headers": {"x-auth": TOKEN}},
                    "console": {},
                },
            },
            test_cases=[
                case("says it", "hello", contains="nothing of it"),
                case("error 401", "error 401", contains="x"),
                case("error 500", "error 500", contains="x"),
                case("garbage", "garbage", contains="x"),
                case("pieces", "pieces", contains="x"),
                case("call", "call", contains="x", expected_tools=["echo"]),
                case("asks for it", f"{WORD}?", contains=WORD),
            ],
        )
        given = list(agent_dir.path.rglob("*"))

        outputs = ("-o", "r.md", "-o", "r.json", "--events", "e.jsonl")
        ran = agent_dir.run("test", *flags, *outputs, env=env)

    assert ran.code in {1, 3}, ran.stderr
    assert {r.headers["authorization"] for r in agent_dir.server.requests} == {f"Bearer {KEY}"}
    written = everything_written(agent_dir, ran, given) | {"traces": str(traces.spans)}
    assert {"r.md", "r.json", "e.jsonl"} <= set(written)
    assert f"***{KEY[-4:]}" in written["r.json"]
    assert f"***{KEY[-4:]}" in written["e.jsonl"]
    tally("leaks", leaks(written), len(written) * len(SECRETS))


def everything_written(agent_dir, ran, given):
    """What a run wrote, by where it did: its streams and each file that was not there before."""
    files = {path for path in agent_dir.path.rglob("*") if path.is_file()} - set(given)
    written = {
        str(path.relative_to(agent_dir.path)): path.read_text("utf-8", "replace")
        for path in files
        if path.suffix != ".pyc"
    }
    assert any(name.endswith("run.jsonl") for name in written)
    return written | {"stdout": ran.stdout, "stderr": ran.stderr}


def leaks(written):
    return [
        (name, secret, text[max(0, text.index(secret) - 60) :][:150])
        for name, text in written.items()
        for secret in SECRETS
        if secret in text
    ]


def test_no_secret_of_an_http_agent_gets_out(agent_dir, tally):
    agent_dir.server.otherwise(
        lambda request: Reply(status=200 + 300 * (request.number % 2), content=f"{KEY} {WORD}")
    )
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend={
            "type": "http",
            "url": agent_dir.server.root.replace("://", f"://user:{WORD}@") + f"/{KEY}?k={WORD}",
            "headers": {"authorization": f"Bearer {KEY}", "x-other": "${DB_PASSWORD}"},
        },
        test_cases=[case("says it", KEY, contains=WORD), case("again", "hi", contains="x")],
    )
    given = list(agent_dir.path.rglob("*"))

    ran = agent_dir.run("test", "-vv", "-o", "r.md", env={"DB_PASSWORD": WORD})

    assert ran.code in {1, 3}, ran.stderr
    written = everything_written(agent_dir, ran, given)
    tally("leaks", leaks(written), len(written) * len(SECRETS))


NAMES = ["key", "code", "sig", "token", "auth", "secret", "subscription-key", "X-Amz-Signature"]
PARAMETERS = {name: f"{name[:3]}9secret{at:02}value" for at, name in enumerate([*NAMES, "k"])}


def test_no_parameter_of_a_url_gets_out(agent_dir, tally):
    query = "&".join(f"{name}={value}" for name, value in PARAMETERS.items())
    agent_dir.server.otherwise(lambda request: Reply(status=500, content=request.raw.decode()))
    file = {"url": f"{agent_dir.server.root}/f.txt?{query}", "type": "text"}
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend={"type": "http", "url": f"{agent_dir.server.root}/a?{query}"},
        execution={"max_retries": 0, "download_timeout": 2},
        test_cases=[
            case("asks", "hi", contains="x"),
            case("reads", "hi", contains="x", files=[file]),
        ],
    )
    given = list(agent_dir.path.rglob("*"))

    outputs = ("-o", "r.md", "-o", "r.json", "-o", "r.html", "--events", "e.jsonl")
    ran = agent_dir.run("test", "-vv", *outputs, env={"HOLODECK_LOG_LEVEL": "DEBUG"})

    assert ran.code in {1, 3}, ran.stderr
    assert agent_dir.server.requests[0].query == PARAMETERS
    written = everything_written(agent_dir, ran, given)
    leaked = [(name, value) for name, text in written.items() for value in PARAMETERS.values()
              if value in text]  # fmt: skip
    tally("leaks", leaked, len(written) * len(PARAMETERS))


def test_no_secret_in_the_command_of_an_agent_gets_out(agent_dir, tally):
    agent_dir.write(
        "agent.py", "import sys\nprint(sys.argv, file=sys.stderr)\nraise SystemExit(9)\n"
    )
    arguments = ["--token", "zZ-argument-secret-1", "--api-key=zZ-argument-secret-2"]
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend={"type": "process", "command": [sys.executable, "agent.py", *arguments]},
        test_cases=[case("asks", "hi", contains="x")],
    )
    given = list(agent_dir.path.rglob("*"))

    ran = agent_dir.run("test", "-vv", "-o", "r.json", "-o", "r.md")

    assert ran.code == 3, ran.stderr
    written = everything_written(agent_dir, ran, given)
    leaked = [name for name, text in written.items() if "zZ-argument-secret" in text]
    tally("leaks", leaked, len(written))
    assert "'env'" in ran.stderr  # where it is not visible to others


def test_no_secret_in_the_path_of_a_url_in_a_context_or_behind_a_short_option_gets_out(
    agent_dir, tally
):
    secrets = {
        "path": "services/T000/B000/zZpathsecret1XXXX",
        "token": "Zz9Path7Token2Secret",
        "bot": "123456:zZ-bot-secret",
        "context": "zZ-context-secret-1",
        "nested": "zZ-nested-secret-2",
        "file": "zZ9file8Secret7Token6",
    }
    root = agent_dir.server.root
    agent_dir.server.otherwise(
        lambda request: Reply(status=200 + 300 * (request.number % 2), content=request.raw.decode())
    )
    context = {"session_token": secrets["context"], "more": {"password": secrets["nested"]}}
    file = {"url": f"{root}/{secrets['file']}/f.txt", "type": "text"}
    urls = [f"{root}/{secrets['token']}/send", f"{root}/bot{secrets['bot']}/send"]
    body = {"input": "{input}", "context": "{context}"}
    written = {}
    for url in urls:
        agent_dir.write_agent(
            model=None,
            instructions=None,
            backend={"type": "http", "url": url, "request": body},
            execution={"max_retries": 0, "download_timeout": 2},
            test_cases=[
                case("asks", f"post it to https://hooks.slack.com/{secrets['path']}", contains="x",
                     context=context),
                case("reads", "hi", contains="x", files=[file], context=context),
            ],
        )  # fmt: skip
        given = list(agent_dir.path.rglob("*"))
        outputs = ("-o", "r.md", "-o", "r.json", "-o", "r.html", "--events", "e.jsonl")
        ran = agent_dir.run("test", "-vv", *outputs, env={"HOLODECK_LOG_LEVEL": "DEBUG"})
        assert ran.code in {1, 3, 4}, ran.stderr
        written |= {f"{url}: {name}": text for name, text in
                    everything_written(agent_dir, ran, given).items()}  # fmt: skip
        for name in ("r.md", "r.json", "r.html", "e.jsonl"):
            written[f"{url}: {name}"] = (agent_dir.path / name).read_text()

    assert any(secrets["context"] in str(request.raw) for request in agent_dir.server.requests)
    leaked = [(name, secret) for name, text in written.items() for secret in secrets.values()
              if secret in text]  # fmt: skip
    tally("leaks", leaked, len(written) * len(secrets))


ARGUMENTS = [
    ["-p", "zZsecret11"], ["-t", "zZsecret12"], ["--tok", "zZsecret13"], ["-pzZsecret14"],
    ["-H", "Authorization: Bearer zZsecret15"], ["--header=X-Api-Key: zZsecret16"],
    ["-u", "joe:zZsecret17"], ["-e", "SOME_TOKEN=zZsecret18"], ["https://h/bot1:zZsecret19/x"],
]  # fmt: skip


def test_no_secret_behind_any_option_of_a_command_gets_out(agent_dir, tally):
    agent_dir.write(
        "agent.py", "import sys\nprint(sys.argv, file=sys.stderr)\nraise SystemExit(9)\n"
    )
    arguments = [word for words in ARGUMENTS for word in words]
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend={"type": "process", "command": [sys.executable, "agent.py", *arguments]},
        test_cases=[case("asks", "hi", contains="x")],
    )
    given = list(agent_dir.path.rglob("*"))

    ran = agent_dir.run("test", "-vv", "-o", "r.json", "-o", "r.md")

    assert ran.code == 3, ran.stderr
    written = everything_written(agent_dir, ran, given)
    leaked = [
        (name, text[text.index("zZsecret") - 30 :][:60])
        for name, text in written.items()
        if "zZsecret" in text
    ]
    tally("leaks", leaked, len(written) * len(ARGUMENTS))


NAMES_IN_DATA = [
    "password", "db_password", "api_key", "X-Api-Key", "token", "access_token", "client_secret",
    "secret", "Authorization", "cookie", "private_key", "dsn",
]  # fmt: skip


@pytest.mark.parametrize("expect", ["nothing", "recorded"])
def test_no_secret_of_an_imported_log_gets_out(bot_dir, tally, expect):
    secret = "hunter2horse9"
    said = [f"{name}: {secret}" for name in NAMES_IN_DATA if name not in {"private_key", "dsn"}]
    logs = [
        {name: secret, "deep": [{name: secret}], "text": json.dumps({name: secret})}
        for name in NAMES_IN_DATA
    ]
    for arguments in [*logs, {"text": said}]:
        call = {"name": "login", "arguments": json.dumps(arguments)}
        message = {"role": "assistant", "tool_calls": [{"id": "c", "function": call}]}
        result = {"role": "tool", "tool_call_id": "c", "content": json.dumps(arguments)}
        user = {"role": "user", "content": f"{json.dumps(arguments)} {'; '.join(said)}"}
        log = {"messages": [user, message, result, {"role": "assistant", "content": "done"}]}
        with (bot_dir.path / "log.jsonl").open("a") as lines:
            lines.write(json.dumps(log) + "\n")

    ran = bot_dir.run("import", "log.jsonl", "--expect", expect)

    assert ran.code == 0, ran.stderr
    assert "login" in ran.stdout
    leaked = [line for line in ran.stdout.split("\n") if secret in line]
    tally("leaks", leaked, ran.stdout.count("***"))


def test_arguments_that_are_nested_900_levels_deep_are_not_imported(bot_dir):
    deep = '{"a":' * 900 + "1" + "}" * 900
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": deep}}]}
    bot_dir.write("log.json", json.dumps([{"role": "user", "content": "hi"}, message]))

    ran = bot_dir.run("import", "log.json", "--expect", "recorded")

    assert ran.code == 0, ran.stderr
    assert "the arguments of 'f' cannot be read" in ran.stderr
