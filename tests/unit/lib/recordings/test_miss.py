"""What a miss says: the nearest recording, where it differs, and what to ignore."""

import pytest

from holodeck.lib.recordings.miss import describe_miss


def request(*texts, path="POST /chat/completions", **fields):
    messages = [{"role": "user", "content": text} for text in texts]
    return {"path": path, "body": {"messages": messages, **fields}}


def test_nothing_is_recorded():
    miss = describe_miss("judge", 1, request("hi"), [])

    assert miss == (
        "request 1 of the judge (POST /chat/completions) is not recorded; nothing of the judge is:"
        " record it with --record"
    )


def test_the_nearest_recording_is_shown_with_the_first_part_that_differs():
    recorded = [request("hi"), request("hi", "Is it here?"), request("bye", "Is it here?")]

    miss = describe_miss("agent", 2, request("hi", "Is it there?"), recorded)

    assert 'differs at $.messages[1].content: recorded "Is it here?", now "Is it there?"' in miss
    assert "ignore" not in miss


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("It is 2026-01-02.", "It is 2026-11-27.", "date"),
        ("At 2026-01-02T10:00:00Z.", "At 2026-11-27T11:12:13.5Z.", "time"),
        ("At 10:00.", "At 11:12:13.", "clock"),
        (
            "Session 0b0f3c52-7b4e-4f0e-9d7e-000000000001",
            "Session 1b0f3c52-7b4e-4f0e-9d7e-0000000000a2",
            "uuid",
        ),
        ("Read /tmp/a/x.txt now", "Read /home/me/x.txt now", "path"),
    ],
)
def test_a_rule_is_offered_for_what_differs_from_run_to_run(old, new, name):
    miss = describe_miss("agent", 1, request(new), [request(old)])

    assert f"write recordings: {{ignore: [{{name: {name}, pattern: '" in miss


def test_no_rule_is_offered_if_something_else_differs_too():
    recorded = [request("It is 2026-01-02.")]

    miss = describe_miss("agent", 1, request("It was 2026-11-27."), recorded)

    assert "ignore" not in miss


def test_the_same_request_once_more_than_recorded():
    miss = describe_miss("agent", 3, request("hi"), [request("hi"), request("hi")], times=3)

    assert "is not recorded so often: it was sent 2 times, and now 3 times" in miss


def test_a_part_that_is_new_or_missing_is_named():
    miss = describe_miss("agent", 1, request("hi", seed=1), [request("hi")])

    assert "differs at $.seed: recorded nothing, now 1" in miss


def test_a_long_text_is_shown_from_where_it_differs():
    text = "x" * 500
    miss = describe_miss("agent", 1, request(f"{text}a"), [request(f"{text}b")])

    assert 'xxxb"' in miss
    assert len(miss) < 300
