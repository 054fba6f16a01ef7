import pytest

from holodeck.models.token_usage import TokenUsage, UsageMeter


def test_a_meter_adds_up_the_usage_of_each_model():
    meter = UsageMeter()

    meter.add(TokenUsage.of(10, 2), "openai/gpt", seconds=0.5)
    meter.add(TokenUsage.of(1, 1), "openai/gpt", requests=3, failed=2, seconds=0.25)
    meter.add(TokenUsage.of(5, 5), "ollama/llama")

    assert meter.by_model == {
        "openai/gpt": TokenUsage.of(11, 3),
        "ollama/llama": TokenUsage.of(5, 5),
    }
    assert meter.usage == meter.known_usage == TokenUsage.of(16, 8)
    assert (meter.requests, meter.failed, meter.seconds) == (5, 2, 0.75)


@pytest.mark.parametrize("usage", [None, TokenUsage()], ids=["none", "no tokens"])
def test_usage_that_one_answer_lacks_is_unknown_as_a_whole(usage):
    meter = UsageMeter()

    meter.add(TokenUsage.of(10, 2), "openai/gpt")
    meter.add(usage, "openai/gpt")

    assert meter.known_usage is None
    assert (meter.usage, meter.unmetered) == (TokenUsage.of(10, 2), 1)


def test_a_failed_request_leaves_the_usage_known():
    meter = UsageMeter()

    meter.add_failed(requests=2)

    assert (meter.requests, meter.failed) == (2, 2)
    assert meter.known_usage == TokenUsage()


def test_a_meter_takes_over_what_another_counted():
    meter, other = UsageMeter(cache_hits=1), UsageMeter(cache_hits=2, seconds=1.5)
    meter.add(TokenUsage.of(1, 2), "openai/gpt")
    other.add(TokenUsage.of(3, 4), "openai/gpt")
    other.add(None, "openai/gpt")
    other.add_failed()

    meter.merge(other)

    assert meter.by_model == {"openai/gpt": TokenUsage.of(4, 6)}
    assert (meter.requests, meter.failed, meter.unmetered) == (4, 1, 1)
    assert (meter.cache_hits, meter.seconds) == (3, 1.5)
