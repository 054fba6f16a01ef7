"""The mistakes that `benchmarks/mutants` makes in a file, and the tests it runs for them."""

import ast
from pathlib import Path

import pytest
from hits import Hits
from mutations import functions_in, mutants_of, with_marks


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
    import holodeck.lib.test_runner.tool_checks as module

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
