import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.text_metrics import NumberReader, NumericEvaluator


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("The answer is 42.", [42]),
        ("-3.5 and +7", [-3.5, 7]),
        ("−12", [-12]),
        ("1.5e3, 2E-2", [1500, 0.02]),
        ("It costs $19.99!", [19.99]),
        ("42km, 5kg", [42, 5]),
        ("10-20", [10, 20]),
        (".5", [0.5]),
        ("(7)", [7]),
        ("7/8", [7, 8]),
        ("H2O, GPT-4, v1.2, x_3", []),
        ("version 1.2.3", []),
        ("3,14", []),
        ("1,234", []),
        ("1_000", []),
        ("45%", []),
        ("1e999", []),
        ("", []),
        ("no number", []),
        ("٤٢", []),
        ("42 m², 42m², 3rd, 16GB, 5 Kelvin", [42, 42, 3, 16, 5]),
        ("0x10, 0b11, 0o17, 1.2x10", []),
        ("$1.2M, 3k, 4bn", []),
        ("3 million, 2 Thousands, 5-dozen", []),
        ("10², 10⁻³, 2½", []),
    ],
)
def test_numbers_are_read_only_where_they_are_plain(text, numbers):
    assert NumberReader().numbers(text) == numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,234", [1234]),
        ("-1,234,567.5", [-1234567.5]),
        ("1,23", []),
        ("12,3456", []),
        ("1,234 and 5", [1234, 5]),
    ],
)
def test_thousands_separators_are_read_where_asked_for(text, numbers):
    assert NumberReader(accept_thousands_separators=True).numbers(text) == numbers


@pytest.mark.parametrize(("text", "numbers"), [("45%", [0.45]), ("4.5 %", [0.045]), ("45", [45])])
def test_percents_are_read_where_asked_for(text, numbers):
    assert NumberReader(accept_percent=True).numbers(text) == pytest.approx(numbers)


@pytest.mark.parametrize(
    ("options", "response", "passed"),
    [
        ({"value": 42}, "42", True),
        ({"value": 42}, "It is 42.0 in all", True),
        ({"value": "42"}, "42", True),
        ({"value": 42}, "43", False),
        ({"value": 42}, "none", False),
        ({"value": 42}, "", False),
        ({"value": 42}, "42 or 43", False),
        ({"value": 42, "pick": "first"}, "42 or 43", True),
        ({"value": 43, "pick": "last"}, "42 or 43", True),
        ({"value": 42, "pick": "last"}, "42 or 43", False),
        ({"value": 42, "pick": "any"}, "41, 42 and 43", True),
        ({"values": [1, 42]}, "42", True),
        ({"value": 42}, "42.0000005", True),
        ({"value": 42}, "42.00001", False),
        ({"value": 42, "absolute_tolerance": 1}, "43", True),
        ({"value": 42, "absolute_tolerance": 0}, "42", True),
        ({"value": 200, "relative_tolerance": 0.05}, "210", True),
        ({"value": 200, "relative_tolerance": 0.05}, "210.1", False),
        ({"value": -200, "relative_tolerance": 0.05}, "-190", True),
        ({"value": 0.45, "accept_percent": True}, "45%", True),
        ({"value": 45}, "45%", False),
        ({"value": 1234, "accept_thousands_separators": True}, "1,234", True),
        ({"value": 234}, "1,234", False),
        ({"value": 0}, "0x10", False),
        ({"value": 1.2}, "$1.2M", False),
        ({"value": 1.2}, "1.2 million", False),
    ],
)
async def test_the_right_number_passes(options, response, passed):
    result = await NumericEvaluator(**options).evaluate(response=response)

    assert result["passed"] is passed
    assert result["score"] == result["numeric"] == float(passed)


async def test_without_a_value_the_ground_truth_is_the_number():
    evaluator = NumericEvaluator()

    result = await evaluator.evaluate(response="42", ground_truth="The answer is 42.")

    assert result["passed"]


@pytest.mark.parametrize("ground_truth", ["forty-two", "42 or 43", "1,234"])
async def test_a_ground_truth_that_is_not_one_number_is_an_error(ground_truth):
    with pytest.raises(EvaluationError, match="is not one number"):
        await NumericEvaluator().evaluate(response="42", ground_truth=ground_truth)


@pytest.mark.parametrize(
    "wrong", [{"value": "many"}, {"values": [1, "2 or 3"]}, {"value": float("nan")}, {"values": []}]
)
def test_a_value_that_is_not_a_number_is_a_configuration_error(wrong):
    with pytest.raises(ConfigError):
        NumericEvaluator(**wrong)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("41", "expected 42, got 41"),
        ("41 or 42", "expected 42, found 2 numbers (41, 42); set 'pick'"),
        ("$42M", "expected 42, found no number ('42M' cannot be read as one) in '$42M'"),
        ("1,042", "expected 42, found no number ('1,042' cannot be read as one) in '1,042'"),
    ],
)
async def test_the_reason_says_which_numbers_were_seen(response, reason):
    result = await NumericEvaluator(value=42).evaluate(response=response)

    assert result["reasoning"].startswith(reason)


@given(number=st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=100)
async def test_every_number_equals_itself_however_python_writes_it(number):
    evaluator = NumericEvaluator(value=number, absolute_tolerance=0)

    assert (await evaluator.evaluate(response=f"It is {number!r}."))["passed"]


@given(text=st.text(alphabet="0123456789.,_-+eE% x", max_size=60))
@settings(max_examples=200)
def test_no_text_can_break_the_reader(text):
    NumberReader(accept_percent=True, accept_thousands_separators=True).numbers(text)
