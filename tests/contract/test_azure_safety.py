"""The metrics of safety: the real library, and a project in Azure that is a server on loopback."""

import datetime as dt
import ipaddress
import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import TypeAdapter

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators import azure_project
from holodeck.lib.evaluators.azure_project import ContentSafetyEvaluator, ViolenceEvaluator
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.models.evaluation import Metric
from holodeck.models.metrics.azure import AzureProject, AzureSafetyMetric
from support.evaluators import EVALUATORS

HARMS = ["violence", "sexual", "self_harm", "hate_unfairness"]
URL = "https://team.services.ai.azure.com/api/projects/greeter"
HUB = {"subscription_id": "s", "resource_group_name": "g", "project_name": "p"}


@dataclass
class Project:
    """The service: how severe it finds each harm, and what it was asked."""

    url: str = ""
    severities: dict[str, Any] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    open: threading.Event = field(default_factory=threading.Event)
    """Until it is set, nobody is answered."""
    was_waited_for: bool = False

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the service answers to one request."""
        self.asked.append(asked)
        self.was_waited_for |= not self.open.wait(60)
        [criterion] = asked["testing_criteria"]
        harm = criterion["name"]
        assert criterion["evaluator_name"] == f"builtin.{harm}"
        found = self.severities.get(harm, {"score": 0, "reason": "harmless"})
        return {"id": "1", "results": [{"metric": harm, "name": harm, "type": "t", **found}]}


@dataclass(frozen=True)
class Token:
    token: str = "secret"
    expires_on: int = 2**31


class Credential:
    def get_token(self, *scopes, **options):
        return Token()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    today = dt.datetime.now(dt.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .add_extension(here, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    secret = key.private_bytes(pem, form, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(pem) + secret)
    return path


@pytest.fixture
def project(certificate, monkeypatch):
    state = Project()
    state.open.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            payload = json.dumps(state.answer(body)).encode()
            self.send_response(state.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    state.url = f"https://127.0.0.1:{server.server_port}/api/projects/greeter"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def metric(name, **keys):
    return TypeAdapter(Metric).validate_python({"type": "azure", "metric": name} | keys)


@pytest.mark.parametrize("name", AzureSafetyMetric.names())
@pytest.mark.parametrize("scope", [URL, HUB], ids=["url", "hub"])
async def test_a_metric_of_agent_yaml_becomes_the_librarys_evaluators(name, scope):
    evaluator = build_evaluator(metric(name, azure_ai_project=scope, threshold=0.9))

    await evaluator.prepare()

    assert not EVALUATORS[name].uses_judge
    assert evaluator.threshold == 0.9
    assert set(evaluator._services) == (set(HARMS) if name == "safety" else {name})
    library = {type(one).__module__.split(".")[0] for one in evaluator._services.values()}
    assert library == {"azure"}


@pytest.mark.parametrize("name", AzureSafetyMetric.names())
@pytest.mark.parametrize("scope", [None, "greeter", "http://127.0.0.1:1"])
def test_without_a_project_it_is_a_configuration_error(name, scope):
    with pytest.raises(ConfigError, match="write 'azure_ai_project: https://") as seen:
        build_evaluator(metric(name, azure_ai_project=scope), location="metrics[3]")

    assert seen.value.field == "metrics[3].azure_ai_project"


async def test_the_worst_harm_counts(project):
    project.severities["sexual"] = {"score": 5, "reason": "rather"}
    evaluator = ContentSafetyEvaluator(project.url, credential=Credential())

    result = await evaluator.evaluate(query="hello", response="well, hello")

    assert result["score"] == result["safety"] == pytest.approx(2 / 7)
    assert (result["raw_score"], result["raw_scale"]) == (5, "0-7")
    assert result["scale"] == "0-1, 1 is good"
    assert result["passed"] is False
    assert "sexual 5: rather" in result["reasoning"]
    assert "violence 0: harmless" in result["reasoning"]
    assert len(project.asked) == 4
    assert all("well, hello" in json.dumps(one) for one in project.asked)


@pytest.mark.parametrize(("severity", "passed"), [(0, True), (3, True), (4, False), (7, False)])
async def test_the_default_threshold_is_the_librarys_own(project, severity, passed):
    project.severities["violence"] = {"score": severity, "reason": "so it is"}
    evaluator = ViolenceEvaluator(project.url, credential=Credential())

    result = await evaluator.evaluate(response="bang")

    assert result["score"] == pytest.approx(1 - severity / 7)
    assert result["passed"] is passed


ODD = [{}, {"score": 0}, {"score": None, "reason": "?"}, {"score": 9, "reason": "a lot"}]


@pytest.mark.parametrize("found", ODD, ids=["nothing", "no reason", "no score", "out of range"])
async def test_a_severity_that_makes_no_sense_is_never_a_score(project, found):
    project.severities["violence"] = found
    evaluator = ViolenceEvaluator(project.url, credential=Credential())

    with pytest.raises(EvaluationError):
        await evaluator.evaluate(response="bang")


async def test_a_project_that_refuses_is_an_error(project):
    project.status = 403
    evaluator = ViolenceEvaluator(project.url, credential=Credential())

    with pytest.raises(EvaluationError, match=r"HttpResponseError.*Forbidden"):
        await evaluator.evaluate(response="bang")


async def test_a_project_that_cannot_be_reached_is_an_error():
    evaluator = ViolenceEvaluator("https://127.0.0.1:9/x", credential=Credential())

    with pytest.raises(EvaluationError, match="Connection refused"):
        await evaluator.evaluate(response="bang")


async def test_a_project_that_never_answers_is_an_error_in_time(project):
    project.open.clear()
    evaluator = ViolenceEvaluator(project.url, credential=Credential(), timeout=0.3)
    await evaluator.prepare()

    with pytest.raises(EvaluationError, match=r"timed out after 0\.3 s"):
        await evaluator.evaluate(response="bang")

    project.open.set()
    assert not project.was_waited_for


def labelled(label, reason="so it is"):
    return {"score": 0, "reason": reason, "properties": {"scoreProperties": {"label": label}}}


def label_evaluator(name, project):
    evaluator = EVALUATORS[name](project.url, credential=Credential())
    return evaluator.evaluate(response="def f(): ...", query="Write f", context="the rules")


@pytest.mark.parametrize(
    ("name", "label", "score"),
    [
        ("indirect_attack", "true", 0),
        ("indirect_attack", "false", 1),
        ("protected_material", True, 0),
        ("protected_material", False, 1),
        ("code_vulnerability", "True", 0),
        ("code_vulnerability", "False", 1),
    ],
)
async def test_a_label_says_that_something_bad_was_found(name, label, score, project):
    project.severities[name] = labelled(label)

    result = await label_evaluator(name, project)

    assert (result["score"], result["passed"]) == (score, score == 1)
    assert result["raw_score"] == 1 - score
    assert result["reasoning"] == "so it is"
    assert "def f(): ..." in json.dumps(project.asked)


@pytest.mark.parametrize(("grade", "passed"), [(1, False), (4, False), (5, True)])
async def test_only_the_best_grade_is_grounded(grade, passed, project):
    project.severities["groundedness"] = {"score": grade, "reason": "so it is"}

    result = await label_evaluator("groundedness_pro", project)

    assert (result["passed"], result["score"]) == (passed, float(passed))
    assert "the rules" in json.dumps(project.asked)


UNLABELLED = [
    {},
    {"score": 0, "reason": "?"},
    {"score": 0, "reason": "?", "properties": {"scoreProperties": {"version": "1"}}},
    labelled("perhaps"),
    labelled("false", reason=""),
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *(("indirect_attack", one) for one in UNLABELLED),
        ("protected_material", UNLABELLED[1]),
        ("code_vulnerability", UNLABELLED[1]),
    ],
)
async def test_a_reply_without_a_label_is_no_pass(name, found, project):
    project.severities[name] = found

    with pytest.raises(EvaluationError, match="returned no label"):
        await label_evaluator(name, project)


@pytest.mark.parametrize("found", [{}, {"reason": "fine"}, {"score": None, "reason": "fine"}])
async def test_a_reply_without_a_grade_is_an_error(found, project):
    project.severities["groundedness"] = found

    with pytest.raises(EvaluationError, match="returned no label"):
        await label_evaluator("groundedness_pro", project)


def test_a_project_of_a_hub_is_named_by_three_names():
    assert azure_project.library_project(AzureProject(**HUB), "safety") == HUB
