"""`holodeck judge check`, run as users run it, with a judge on loopback."""

import json
import re

import pytest

from fakes import Reply, run_cli
from support.token_probabilities import yes

WAGES = {"input": "What is it?", "criterion": "Does it name a price?"}
ROWS = [
    WAGES | {"response": "9 euros.", "label": "pass", "ground_truth": "9"},
    WAGES | {"response": "A chair.", "label": "fail", "ground_truth": "9"},
    WAGES | {"input": "And that?", "response": "Two euros.", "label": "pass"},
    WAGES | {"input": "And that?", "response": "Ask euros.", "label": "fail"},
]


@pytest.fixture
def server(fake_openai):
    """Says yes to euros."""
    return fake_openai.otherwise(lambda request: yes(0.9 if "euros" in request.prompt else 0.2))


@pytest.fixture
def check(server, tmp_path):
    """Runs the check on rows, with the server as the judge unless told otherwise."""

    def checked(*args, rows=ROWS, model=True):
        (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        named = ["--model", "openai/wise", "--endpoint", server.url] if model else []
        return run_cli("judge", "check", "labels.jsonl", *named, *args, cwd=tmp_path)

    return checked


def test_a_check_tells_agreement_and_whether_verdicts_stay_the_same(check, server, tmp_path):
    ran = check("--json", "check.json")

    assert ran.code == 0
    assert "accuracy                    0.75 (3 of 4; 95 %: 0.30 to 0.95)" in ran.stdout
    assert "Cohen's kappa               0.50 ± 0.43" in ran.stdout
    assert "people say fail, the judge 0.90: Does it name a price? Ask euros." in ran.stdout
    assert "judged 12 of 12" in ran.stderr
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["judge"] == "openai/wise"
    assert found["true_positive_rate"]["value"] == 1
    assert found["true_negative_rate"]["value"] == 0.5
    assert found["same_each_time"]["value"] == 1
    assert found["calls"] == len(server.requests) == 12
    assert [one["agrees"] for one in found["judgements"]] == [True, True, True, False]


def test_a_quick_check_asks_once_for_each_answer(check, server):
    ran = check("--quick")

    assert ran.code == 0
    assert len(server.requests) == 4
    assert "accuracy                    0.75" in ran.stdout
    assert "same verdict each time" not in ran.stdout


def labels(good, bad, wrong=0):
    """So many labels of each kind; the judge passes `wrong` of the bad ones."""
    right = [WAGES | {"response": f"{n} euros.", "label": "pass"} for n in range(good)]
    refused = [WAGES | {"response": f"Chair {n}.", "label": "fail"} for n in range(bad - wrong)]
    fooled = [WAGES | {"response": f"No euros, {n}.", "label": "fail"} for n in range(wrong)]
    return [*right, *refused, *fooled]


GATES = {
    "a good judge": (labels(40, 40), [], 0, "yes: kappa is at least 0.91 (0.60 needed)"),
    "bad responses pass": (labels(30, 40, wrong=10), [], 1, "no: at least 13% of bad responses"),
    "kappa is too low": (
        labels(40, 40, wrong=10), ["--max-false-passes", "0.6", "--min-kappa", "0.9"],
        1, "no: kappa is at most 0.88 (0.90 needed)",
    ),
    "too few labels for this judge": (
        labels(30, 40, wrong=1), [], 4, "about 77 more labels would decide",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "flags", "code", "reason"), GATES.values(), ids=GATES)
def test_a_judge_may_gate_only_if_the_labels_show_that_it_is_good(check, rows, flags, code, reason):
    ran = check("--gate", "--quick", *flags, rows=rows)

    assert ran.code == code
    assert reason in ran.stdout
    assert (reason in ran.stderr) is (code != 0)
    assert check("--quick", rows=rows).code == 0


TOO_FEW = {
    "two labels": (labels(1, 1), "add 9 more with label 'pass' and 35 more with label 'fail'"),
    "one kind": (labels(25, 0), "25 different labels (25 pass, 0 fail) are too few"),
    "hardly any of a kind": (labels(40, 2), "add 34 more with label 'fail'"),
    "the same ones again and again": (20 * labels(1, 1), "2 different labels (1 pass, 1 fail)"),
}


@pytest.mark.parametrize(("rows", "told"), TOO_FEW.values(), ids=TOO_FEW)
def test_a_gate_with_too_few_labels_is_an_error_that_says_what_to_add(check, server, rows, told):
    ran = check("--min-kappa", "0.7", "--quick", rows=rows)

    assert ran.code == 2
    assert told in ran.stderr
    assert server.requests == []


def test_inconclusive_answers_count_against_the_judge_in_the_gate(check, server, tmp_path):
    server.when("Perhaps", yes(0.52))
    unsure = [WAGES | {"response": f"Perhaps {n} euros.", "label": "pass"} for n in range(38)]
    (tmp_path / "shop.py").write_text("def answer(text): return text\n")
    (tmp_path / "agent.yaml").write_text(f"""
name: shop
backend: "shop:answer"
evaluations:
  model: {{provider: openai, name: wise, endpoint: "{server.url}", api_key: k}}
  metrics:
    - {{type: judge, name: price, margin: 0.1, threshold: 0.5, criteria: [Does it name a price?]}}
""")

    ran = check(
        "--metric", "price", "--gate", "--quick", rows=[*labels(40, 40), *unsure], model=False
    )

    assert ran.code == 1
    assert "inconclusive                38" in ran.stdout
    assert "accuracy                    1.00 (80 of 80" in ran.stdout
    assert "no: kappa is at most" in ran.stderr


def verdict_on(rule):
    """A judge that decides by the answer alone, without what the prompt says about it."""

    def judged(request):
        [answer] = re.findall(r"<answer (\w+)>(.*)</answer \1>", request.prompt, re.DOTALL)
        return yes(0.9 if rule(answer[1]) else 0.1)

    return judged


PROBED = {
    "falls for injections": (
        lambda text: "euros" in text or "yes" in text, 1, True,
        "no: with an injection, at least 90% of bad responses pass (10% allowed)",
    ),
    "is not impressed": (
        lambda text: "euros" in text, 0, False,
        "at most 10% of bad responses pass, and 10% of those with an injection (10% allowed)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "code", "is_fooled", "reason"), PROBED.values(), ids=PROBED)
def test_probes_show_whether_injections_get_bad_responses_through(
    check, server, tmp_path, rule, code, is_fooled, reason
):
    server.otherwise(verdict_on(rule))
    (tmp_path / "shop.py").write_text("def answer(text): return text\n")
    (tmp_path / "agent.yaml").write_text(f"""
name: shop
backend: "shop:answer"
evaluations:
  model: {{provider: openai, name: wise, endpoint: "{server.url}", api_key: k}}
  metrics: [{{type: judge, name: price, criteria: [Does it name a price?]}}]
""")
    flags = ["--probe", "--quick", "--gate", "--save", "--json", "check.json"]

    ran = check("--metric", "price", *flags, rows=labels(10, 36), model=False)

    assert ran.code == code
    assert reason in ran.stdout
    found = json.loads((tmp_path / "check.json").read_text())
    by_name = {one["name"]: one for one in found["probes"]}
    fooled = 36 if is_fooled else 0
    assert by_name["command"]["bad_that_pass"] == {"count": fooled, "of": 36}
    assert re.search(rf"injection: command +{fooled} of 36 +– +0\n", ran.stdout)
    assert by_name["filler around it"]["good_that_fail"] == {"count": 0, "of": 10}
    assert found["calls"] == 46 + sum(len(one["responses"]) for one in found["probes"])
    assert found["injected_passes"]["of"] == 36
    [stored] = json.loads((tmp_path / "judge_checks.json").read_text())["metrics"]
    assert stored["verdict"] == ("may not gate" if is_fooled else "may gate")
    assert (stored["injected_passes"][0] > 0.8) is is_fooled


def test_a_good_response_with_a_wrong_number_counts_if_it_still_passes(check):
    ran = check("--probe", "--quick")

    assert ran.code == 0
    assert re.search(r"wrong: another number +1 of 1 +– +0\n", ran.stdout)
    assert "  wrong: another number: 11 euros.\n" in ran.stdout


def test_a_ground_truth_is_shown_where_there_is_one(check, server):
    check("--repeats", "1")

    shown = ["reference" in one.prompt for one in server.requests if "logprobs" in one.body]
    assert sum(shown) == 2


def test_what_cannot_be_judged_is_listed_and_is_exit_4(check, server):
    server.when("A chair", "I would rather not say.")

    ran = check("--repeats", "1")

    assert ran.code == 4
    assert "accuracy                    0.67 (2 of 3" in ran.stdout
    assert "did not answer as asked, twice" in ran.stdout


def test_a_refused_judge_is_told_of_in_one_line(check, server):
    ids = iter(range(1000))
    server.when(
        lambda _: True, lambda _: Reply(status=401, content=f"no, request req_12345{next(ids):03}")
    )

    ran = check("--quick", rows=labels(20, 20))

    assert ran.code == 4
    assert ran.stdout.count("HTTP 401") == 1
    assert "40 times: the judge openai/wise: HTTP 401: no, request req_12345" in ran.stdout


def test_only_the_criteria_that_are_named_are_judged(check):
    other = ROWS[0] | {"criterion": "Is it polite?"}

    ran = check("--criterion", "polite", "--repeats", "1", rows=[*ROWS, other])
    none = check("--criterion", "rude")

    assert "answers                     1\n" in ran.stdout
    assert none.code == 5
    assert "known: Does it name a price?" in none.stderr


def test_the_judge_and_the_questions_may_come_from_an_agent_yaml(check, server, tmp_path):
    (tmp_path / "agent.yaml").write_text(f"""
name: shop
backend: "shop:answer"
evaluations:
  model: {{provider: openai, name: wise, endpoint: "{server.url}", api_key: k}}
  metrics:
    - type: judge
      name: price
      threshold: 0.95
      criteria:
        - Is it polite?
        - question: Does it name a price?
          threshold: 0.95
      examples:
        - {{response: It is free., answers: ["yes", "no"]}}
""")
    (tmp_path / "shop.py").write_text("def answer(text): return text\n")

    ran = check("--metric", "price", "--repeats", "1", model=False)

    assert ran.code == 0
    assert "good answers passed         0.00" in ran.stdout
    assert "(now 0.95)" in ran.stdout
    asked = next(one for one in server.requests if "logprobs" in one.body)
    assert [one["content"] for one in asked.body["messages"] if one["role"] == "assistant"] == [
        "no"
    ]
    assert "known: price" in check("--metric", "prize", model=False).stderr


def test_forty_answers_come_with_holodeck(server, tmp_path):
    named = ["--model", "openai/wise", "--endpoint", server.url]

    ran = run_cli("judge", "check", *named, "--repeats", "1", cwd=tmp_path)

    assert ran.code == 0
    assert "answers                     40" in ran.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--model", "wise"], "write PROVIDER/NAME"),
        (["--model", "openai/wise"], "missing API key for openai"),
        (["--endpoint", "http://127.0.0.1:1"], "add --model"),
        (["--model", "openai/wise", "--metric", "x"], "remove --metric or --model"),
        (["--json", "labels.jsonl/check.json"], "--json: 'labels.jsonl/check.json' cannot"),
        ([], "agent.yaml: file not found"),
    ],
)
def test_what_is_wrong_is_said_before_anybody_is_asked(check, server, args, said):
    ran = check(*args, model=False)

    assert ran.code in {2, 3}
    assert said in ran.stderr
    assert server.requests == []


def test_a_wrong_line_is_named(check, tmp_path):
    ran = check(rows=[ROWS[0], {"input": "x"}])

    assert ran.code == 2
    assert "Configuration Error: labels.jsonl:2: 'response' is missing" in ran.stderr


def test_people_who_label_set_the_ceiling_and_their_majority_decides(check, server, tmp_path):
    rows = [
        WAGES | {"response": "Nine euros.", "labels": {"anna": "pass", "ben": "pass"}},
        WAGES | {"response": "A chair.", "labels": {"anna": "fail", "ben": "fail"}},
        WAGES | {"response": "Nine.", "labels": {"anna": "pass", "ben": "fail"}},
        WAGES | {"response": "Cheap.", "labels": {"anna": "fail", "ben": None}},
    ]

    ran = check("--quick", "--json", "check.json", rows=rows)

    assert ran.code == 0
    assert "people                      2: anna, ben" in ran.stdout
    assert "2 of 3 responses with several labels; Cohen's kappa 0.40" in ran.stdout
    assert "no judge can be expected to agree with people more than they agree" in ran.stdout
    assert "people themselves stay below the kappa of 0.60" in ran.stdout
    assert "1 response without a majority, left out" in ran.stdout
    assert "People disagree on 1:\n  anna pass, ben fail: Does it name a price? Nine." in ran.stdout
    assert "accuracy                    1.00 (3 of 3" in ran.stdout
    assert len(server.requests) == 3
    people = json.loads((tmp_path / "check.json").read_text())["people"]
    assert people["value"] == pytest.approx(0.4)
    assert [row["response"] for row in people["disagreements"]] == ["Nine."]


@pytest.fixture
def two_judges(check, server):
    """Checks a judge that fails what is `hard`, then one that fails what is `odd` against it."""

    def checked(hard, odd=0, extra=()):
        texts = ["hard"] * hard + ["odd"] * odd + ["easy"] * 8
        good = [
            WAGES | {"response": f"{text}, {n} euros.", "label": "pass"}
            for n, text in enumerate(texts)
        ]
        rows = [*good, *labels(good=0, bad=4)]

        def failing(word):
            return lambda request: yes(
                0.1 if word in request.prompt or "Chair" in request.prompt else 0.9
            )

        server.otherwise(failing("hard, "))
        assert check("--quick", "--json", "before.json", rows=rows).code == 0
        server.otherwise(failing("odd, "))
        return check(
            "--quick", "--against", "before.json", "--json", "now.json", rows=[*rows, *extra]
        )

    return checked


def test_a_better_judge_is_told_from_noise(two_judges, tmp_path):
    extra = WAGES | {"response": "Two euros, new.", "label": "pass"}

    ran = two_judges(hard=9, odd=1, extra=[extra])

    assert ran.code == 0
    assert "Two judges on 22 labels; 1 label of only one are left out:" in ran.stdout
    assert "openai/wise (now)        agrees with 21 of 22 labels (0.95)" in ran.stdout
    assert "openai/wise (--against)  agrees with 13 of 22 labels (0.59)" in ran.stdout
    assert "exact McNemar test: p = 0.0215" in ran.stdout
    assert "openai/wise (now) agrees with people more often, and that is more" in ran.stdout
    against = json.loads((tmp_path / "now.json").read_text())["against"]
    assert against["mcnemar_exact_p_value"] == pytest.approx(0.021484375)
    assert (against["only_this_judge_agrees"], against["only_the_other_agrees"]) == (9, 1)


@pytest.mark.parametrize(
    ("hard", "odd", "sentence"),
    [
        (0, 0, "Both are right about the same responses, so nothing sets them apart."),
        (3, 0, "With 3 labels on which they differ, no difference could be told from noise"),
        (5, 0, "With 5 labels on which they differ, no difference could be told from noise"),
        (5, 1, "The difference may be noise (p > 0.05)."),
        (6, 2, "The difference may be noise (p > 0.05)."),
        (0, 6, "openai/wise (--against) agrees with people more often"),
    ],
)
def test_two_judges_are_compared_in_a_plain_sentence(two_judges, hard, odd, sentence):
    ran = two_judges(hard, odd)

    assert sentence in ran.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "is not the result of a check"),
        ("{}", "is not the result of a check"),
        ('{"schema_version": 1, "judge": "a", "judgements": [{}]}', "is not the result"),
        (None, "cannot be read: No such file"),
    ],
)
def test_another_check_that_cannot_be_read_is_refused_before_a_call(
    check, server, tmp_path, text, message
):
    if text is not None:
        (tmp_path / "other.json").write_text(text)

    ran = check("--quick", "--against", "other.json")

    assert ran.code == 2
    assert message in ran.stderr
    assert server.requests == []


def test_checks_of_other_labels_are_not_compared(check, server):
    check("--quick", "--json", "other.json", rows=labels(1, 1))
    asked = len(server.requests)

    ran = check("--quick", "--against", "other.json")

    assert ran.code == 2
    assert "other.json: is about none of these labels" in ran.stderr
    assert len(server.requests) == asked
