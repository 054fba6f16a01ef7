"""Answers of a model server that also tells how likely each first word was."""

import math

from support.wire_types import Reply


def token_probabilities(**words: float) -> Reply:
    """The likeliest of the words, with the chances of all."""
    every = [
        {"token": word, "logprob": math.log(chance)} for word, chance in words.items() if chance
    ]
    first = max(every, key=lambda one: one["logprob"])
    choice = {
        "message": {"role": "assistant", "content": first["token"]},
        "logprobs": {"content": [{**first, "top_logprobs": every}]},
        "finish_reason": "length",
    }
    usage = {"prompt_tokens": 90, "completion_tokens": 1}
    return Reply(json={"choices": [choice], "usage": usage})


def yes(chance: float) -> Reply:
    """Yes with this chance, else no."""
    return token_probabilities(yes=chance, no=1 - chance)
