"""The mistakes that `benchmarks/mutants` makes in a file, and the tests it runs for them."""

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hits import Hits
from mutations import functions_in, mutants_of, with_marks
from parts import PARTS, draw, part_of
from verdicts import Results, Verdict, table


def changes(text):
    """The mutants of a function with that one line, as lines."""
    source = f"def f(a, b, c):\n    {text}\n".encode()
    return [one.lines(source)[1] for one in mutants_of("x.py", source)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("b = a < 1", ["b = (a <= 1)", "b = a < 2", "b = a < 0"]),
        ("b = all(a)", ["b = any(a)"]),
        ("b = max(a)", ["b = min(a)"]),
        ("b = a is None", ["b = (a is not None)"]),
        ("b = not a", ["b = (a)"]),
        ("b = a and c", ["b = (a or c)", "b = (a)", "b = (c)"]),
        ("a = b if c else 0",
         ["a = b if (not (c)) else 0", "a = b if c else 1", "a = b if c else (-1)"]),
        ("return a", ["return None"]),
        ("a.b = c", ["pass"]),
        ("a(c)", ["pass"]),
        ("raise a", ["pass"]),
        ("b = Outcome.PASSED", ["b = Outcome.FAILED"]),
        ("b = a == 'exact'", ["b = (a != 'exact')", "b = a == 'exact?'"]),
        ("b = [x for x in a if x]",
         ["b = [x for x in a if (not (x))]", "b = [x for x in a if True]"]),
        ("b = True", ["b = False"]),
        ("logger.debug('%s', a)", []),
        ("'a docstring'", []),
        ("b = f'{a < 1} is a message'", []),
    ],
)  # fmt: skip
def test_a_line_has_the_mutants_of_what_stands_in_it(text, lines):
    assert sorted(changes(text)) == sorted(lines)


def test_a_default_a_bound_and_a_constant_belong_to_no_function_but_have_names():
    source = b"LIMIT = 3\n\nclass Row:\n    score: Annotated[float, Field(ge=0)] = 1\n"

    mutants = mutants_of("x.py", source)

    assert {(one.function, one.names) for one in mutants} == {
        ("", ("LIMIT",)),
        ("Row.", ("score",)),
    }
    assert b"Field(ge=(-1))" in b"".join(one.applied(source) for one in mutants)


def test_every_mutant_of_a_module_of_ours_is_python_and_differs():
    import holodeck.lib.checks.tool_checks as module

    source = Path(module.__file__).read_bytes()
    mutants = mutants_of("tool_checks.py", source)

    assert len(mutants) > 150
    for one in mutants:
        ast.parse(one.applied(source))
        before, after = one.lines(source)
        assert before != after


def test_a_function_tells_that_it_runs_behind_its_docstring():
    source = "class A:\n    def f(self):\n        'what it does'\n        return 1\n"

    marked = with_marks(source, lambda name: f"seen({name!r})")

    [(name, function)] = functions_in(ast.parse(marked))
    assert (name, ast.get_docstring(function)) == ("A.f", "what it does")
    assert "seen('A.f')\n        return 1" in marked


class NoFiles:
    """A sandbox without sources."""

    src = Path("/nowhere/at/all")


def test_the_tests_of_few_functions_run_first_and_those_that_start_processes_last():
    hits = Hits(
        seconds={"broad": 0.1, "narrow": 0.2, "slow start": 0.1},
        by_function={"x.py::f": ["broad", "narrow", "slow start", "red"], "x.py::g": ["broad"]},
        apart=["slow start"],
    )
    [mutant] = mutants_of("x.py", b"def f(a):\n    return a\n")

    assert hits.tests_for(mutant, NoFiles()) == ["narrow", "broad", "slow start"]


def mutants_in(path, count):
    lines = "".join(f"    b = a < {number}\n" for number in range(count))
    return mutants_of(path, f"def f(a):\n{lines}".encode())[:count]


GATES, CHECKS = "holodeck/lib/compare/gate.py", "holodeck/lib/test_runner/grading/checks.py"


def test_as_many_mutants_are_drawn_of_each_part_until_one_has_no_more():
    mutants = {"checks": mutants_in(CHECKS, 20), "gates": mutants_in(GATES, 3)}

    drawn = [draw(mutants, count, seed=7) for count in (4, 10, 99)]

    counts = [Counter(mutant.path for mutant in chosen) for chosen in drawn]
    assert counts == [{CHECKS: 2, GATES: 2}, {CHECKS: 7, GATES: 3}, {CHECKS: 20, GATES: 3}]


def test_a_longer_run_continues_a_shorter_one_of_the_same_seed_and_one_of_fewer_parts():
    mutants = {"checks": mutants_in(CHECKS, 20), "gates": mutants_in(GATES, 20)}

    short, long, other = draw(mutants, 6, 7), draw(mutants, 20, 7), draw(mutants, 6, 8)
    alone = draw({"checks": mutants["checks"]}, 10, 7)

    assert set(short) < set(long)
    assert set(alone) == {mutant for mutant in long if mutant.path == CHECKS}
    assert set(short) != set(other)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (GATES, "gates"),
        ("holodeck/lib/evaluators/base.py", "metric base"),
        ("holodeck/lib/evaluators/text_metrics.py", "metrics"),
        ("holodeck/lib/evaluators/azure_ai.py", None),
        ("holodeck/lib/backends/frameworks/tracing.py", "adapters"),
        ("holodeck/lib/ui/terminal.py", None),
    ],
)
def test_a_module_belongs_to_the_first_part_that_names_it(path, part):
    assert part_of(path) == part


def test_every_part_names_modules_that_exist():
    src = Path(__file__).parents[3] / "src"

    missing = [
        pattern for patterns in PARTS.values() for pattern in patterns if not any(src.glob(pattern))
    ]

    assert missing == []


def test_a_run_that_is_continued_tries_what_no_test_has_seen_again(tmp_path):
    verdicts = [
        Verdict(mutant, f"before {number}", "after", "survived")
        for number, mutant in enumerate(mutants_in(GATES, 4))
    ]
    results = Results(tmp_path / "results.jsonl")
    for verdict, kinds in zip(
        verdicts, (["killed"], ["survived", "hung"], ["killed", "survived"], ["equivalent"]),
        strict=True,
    ):  # fmt: skip
        for kind in kinds:
            results.add(replace(verdict, kind=kind, by="a test"), seed=7)

    assert results.seen() == {
        verdicts[0].key: ("killed", "a test"),
        verdicts[1].key: ("hung", "a test"),
    }
    assert Results(tmp_path / "missing.jsonl").seen() == {}


def test_the_table_counts_by_part_and_equivalent_mutants_lower_no_rate():
    [at_gate, at_checks] = [*mutants_in(GATES, 1), *mutants_in(CHECKS, 1)]
    kinds = ["killed", "killed", "hung", "survived", "equivalent"]
    verdicts = [Verdict(at_gate, "", "", kind) for kind in kinds]

    lines = table([*verdicts, Verdict(at_checks, "", "", "killed")]).splitlines()

    assert [" ".join(line.split()) for line in lines[1:]] == [
        "gates 2 1 1 1 75.0% 30.1%",
        "checks 1 0 0 0 100.0% 20.7%",
        "all 3 1 1 1 80.0% 37.6%",
    ]
