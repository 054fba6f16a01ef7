"""What a stored check of a judge is about: a change of anything else makes it stale."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holodeck
from holodeck.config.loader import load_agent_with_config
from holodeck.lib.test_runner.grading.checks import EvaluatorSet
from holodeck.lib.test_runner.grading.judge_trust import (
    fingerprint_of_judge,
    write_checks,
)
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.judge_trust import CRITERIA, JudgeChecks, Limits, MetricCheck

AGENT = """
name: shop
backend: "shop:answer"
evaluations:
  model: {provider: local, name: ./judge.gguf}
  metrics: [{type: judge, name: price, criteria: [Does it name a price?]}]
test_cases: [{input: How much?}]
"""


def test_swapped_local_weights_are_not_checked(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "shop.py").write_text("def answer(text): return 'Nine euros.'\n")
    weights = tmp_path / "judge.gguf"
    weights.write_bytes(b"GGUF of the judge that was checked")
    agent, _, _ = load_agent_with_config(str(tmp_path / "agent.yaml"))
    [metric] = agent.evaluations.metrics
    check = MetricCheck(
        metric="price",
        judge="local/./judge.gguf",
        fingerprint=fingerprint_of_judge(metric, agent.judge_model, tmp_path),
        verdict="may gate",
        good_labels=40,
        bad_labels=40,
        labelled=["Does it name a price?"],
        limits=Limits(),
        checked="2026-01-01",
        holodeck_version="0",
    )
    write_checks(tmp_path, JudgeChecks(metrics=[check]))

    def trust():
        checks = EvaluatorSet(agent, settings=ExecutionConfig(judge_trust="require"))
        return checks.checks_of(0).at_end[0].trust

    before = trust()
    weights.write_bytes(b"GGUF of another judge, same path!!")

    assert (before.state, before.is_missing) == ("checked", False)
    assert (trust().state, trust().is_missing) == ("stale", True)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({}, {"endpoint": "https://api.openai.com/v1"}, True),
        ({}, {"endpoint": "https://api.openai.com/v1/"}, True),
        ({}, {"endpoint": "http://127.0.0.1:4000/v1"}, False),
        ({"api_key": "a"}, {"api_key": "b"}, True),
        ({}, {"temperature": 0.7}, False),
    ],
)
def test_the_endpoint_is_part_of_the_judge_and_the_key_is_not(tmp_path, one, other, is_same):
    first, second = (
        fingerprint_of_judge(
            CRITERIA, LLMProvider(provider="openai", name="wise", **keys), tmp_path
        )
        for keys in (one, other)
    )

    assert (first == second) is is_same


PRINT = """
from pathlib import Path
from holodeck.lib.test_runner.grading.judge_trust import fingerprint_of_judge
from holodeck.models.metrics.judge import JudgeMetric
from holodeck.models.llm import LLMProvider

judge = LLMProvider(provider="openai", name="wise")
metric = JudgeMetric(type="judge", name="price", criteria=["Does it name a price?"])
print(*(fingerprint_of_judge(one, judge, Path()) for one in (metric, "criteria")))
"""


def test_code_that_turns_answers_into_verdicts_is_part_of_the_judge(tmp_path):
    package = tmp_path / "holodeck"
    shutil.copytree(Path(holodeck.__file__).parent, package)

    def fingerprints():
        command = [sys.executable, "-c", PRINT]
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return run.stdout.split()

    def changed_by(file):
        before = fingerprints()
        with (package / file).open("a") as source:
            source.write("\n# changed\n")
        return [old != new for old, new in zip(before, fingerprints(), strict=True)]

    assert changed_by("lib/evaluators/judge_metric.py") == [True, False]
    assert changed_by("lib/conversation/criteria_judge.py") == [False, True]
    assert changed_by("lib/judging/judge.py") == [True, True]
    assert changed_by("lib/backends/base.py") == [False, False]
