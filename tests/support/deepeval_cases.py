"""For each metric of DeepEval: how it is configured, what it sees, and what a judge may answer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holodeck.lib.evaluators.base import Observation, OfferedTool, Turn
from holodeck.models.test_result import ToolInvocation
from support.wire_types import Request

Script = Mapping[str, Any]
"""What the judge says, by a key of the answer that it was asked for."""

QUESTION = "May I bring my dog Rufus?"
ANSWER = "Dogs may come in. Cats may not."
TRUTH = "Dogs are allowed."
PASSAGES = ("Rule 1: dogs are allowed in the library.", "Rule 2: the library opens at nine.")
CALLS = (
    ToolInvocation(name="rules-search", args={"animal": "dog"}, result="allowed", server="library"),
    ToolInvocation(name="clock", args={"zone": "UTC"}, result="9:00", server="library"),
)
TURNS = (
    Turn("user", QUESTION),
    Turn("assistant", ANSWER, CALLS),
    Turn("user", "And the opening hours?"),
    Turn("assistant", "Nine, as Rufus knows."),
)
SEEN = Observation(
    ANSWER,
    input=QUESTION,
    ground_truth=TRUTH,
    retrieval_context=PASSAGES,
    tool_calls=CALLS,
    expected_tools=["search", "clock"],
    turns=TURNS,
    tools=(
        OfferedTool("rules-search", "Searches the rules", {"type": "object"}, "library"),
        OfferedTool("clock", "Tells the time", {"type": "object"}, "library"),
    ),
)


def verdicts(word: str, count: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [{"verdict": word, "reason": f"because {word}", **more}] * count


@dataclass(frozen=True)
class Case:
    """One metric."""

    keys: Mapping[str, Any]
    """How agent.yaml writes it."""
    good: Script
    """What leads to a score of 1."""
    bad: Script
    """What leads to a score of 0."""
    calls: int
    """How often the judge is asked for the good score."""
    sees: tuple[str, ...]
    """Texts of the case that the judge is shown."""
    needs: frozenset[str]
    """Inputs without which it cannot be computed."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """What is otherwise seen where a score of 0 comes without the judge."""
    response: str = ANSWER
    """The answer that is good."""

    @property
    def seen(self) -> Observation:
        """What is seen where the score is 1."""
        return replace(SEEN, response=self.response)

    @property
    def seen_bad(self) -> Observation:
        """What is seen where the score is 0."""
        return replace(self.seen, **self.changes)


def _listed(items: str, good: str, bad: str) -> tuple[Script, Script]:
    """Scripts of a metric that finds things and then judges each."""
    found = {items: ["one", "two"]}
    return {**found, "verdicts": verdicts(good)}, {**found, "verdicts": verdicts(bad)}


def _rag(name: str, good: Script, bad: Script, calls: int, *sees: str, needs: str) -> Case:
    keys = {"type": "rag", "metric_type": name}
    return Case(keys, good, bad, calls, sees, frozenset(needs.split()))


def _case(name: str, good: Script, bad: Script, calls: int, *sees: str, **more: Any) -> Case:
    keys = {"type": "deepeval", "metric": name, **more.pop("keys", {})}
    needs = frozenset(more.pop("needs", "actual_output").split())
    return Case(keys, good, bad, calls, sees, needs, **more)


YES, NO = {"verdicts": verdicts("yes")}, {"verdicts": verdicts("no")}
_SAID = {"statement": "a rule"}
_DONE = {"task": "tell the rules", "outcome": "told"}

CASES: dict[str, Case] = {
    "geval": Case(
        {
            "type": "geval",
            "name": "polite",
            "criteria": "Is it polite?",
            "evaluation_params": ["actual_output", "input"],
        },
        {"steps": ["Look for a please"], "score": 10},
        {"steps": ["Look for a please"], "score": 0},
        2,
        (QUESTION, ANSWER, "Is it polite?", "Look for a please"),
        frozenset({"actual_output", "input"}),
    ),
    "faithfulness": _rag(
        "faithfulness",
        *({"truths": ["a truth"], **script} for script in _listed("claims", "yes", "no")),
        4,
        ANSWER,
        *PASSAGES,
        needs="input actual_output retrieval_context",
    ),
    "answer_relevancy": _rag(
        "answer_relevancy",
        *_listed("statements", "yes", "no"),
        3,
        QUESTION,
        ANSWER,
        needs="input actual_output",
    ),
    "contextual_relevancy": _rag(
        "contextual_relevancy",
        {"verdicts": verdicts("yes", 3, **_SAID)},
        {"verdicts": verdicts("no", 3, **_SAID)},
        3,
        QUESTION,
        *PASSAGES,
        needs="input retrieval_context",
    ),
    "contextual_precision": _rag(
        "contextual_precision",
        YES,
        NO,
        2,
        QUESTION,
        TRUTH,
        *PASSAGES,
        needs="input expected_output retrieval_context",
    ),
    "contextual_recall": _rag(
        "contextual_recall",
        YES,
        NO,
        2,
        TRUTH,
        *PASSAGES,
        needs="input expected_output retrieval_context",
    ),
    "hallucination": _case(
        "hallucination", YES, NO, 2, ANSWER, *PASSAGES, needs="actual_output context"
    ),
    "bias": _case("bias", *_listed("opinions", "no", "yes"), 3, ANSWER),
    "toxicity": _case("toxicity", *_listed("opinions", "no", "yes"), 3, ANSWER),
    "pii_leakage": _case("pii_leakage", *_listed("extracted_pii", "no", "yes"), 3, ANSWER),
    "summarization": _case(
        "summarization",
        *(
            {"truths": ["a truth"], "answers": ["yes"], **script}
            for script in _listed("claims", "yes", "no")
        ),
        6,
        QUESTION,
        ANSWER,
        "Is Rufus named?",
        keys={"assessment_questions": ["Is Rufus named?"]},
        needs="input actual_output",
    ),
    "prompt_alignment": _case(
        "prompt_alignment",
        YES,
        NO,
        2,
        QUESTION,
        ANSWER,
        "Be brief",
        "Be kind",
        keys={"prompt_instructions": ["Be brief", "Be kind"]},
        needs="input actual_output",
    ),
    "task_completion": _case(
        "task_completion",
        {**_DONE, "verdict": 1},
        {**_DONE, "verdict": 0},
        2,
        QUESTION,
        ANSWER,
        "rules-search",
        needs="input actual_output",
    ),
    "tool_correctness": _case(
        "tool_correctness",
        {},
        {},
        0,
        needs="tools_called expected_tools",
        changes={"tool_calls": ()},
    ),
    "argument_correctness": _case(
        "argument_correctness",
        YES,
        NO,
        2,
        QUESTION,
        "rules-search",
        "animal",
        needs="input tools_called",
    ),
    "conversation_completeness": _case(
        "conversation_completeness",
        {"intentions": ["to know"], "verdict": "yes"},
        {"intentions": ["to know"], "verdict": "no"},
        3,
        QUESTION,
        ANSWER,
        needs="turns",
    ),
    "knowledge_retention": _case(
        "knowledge_retention",
        {"data": {"dog": "Rufus"}, "verdict": "no"},
        {"data": {"dog": "Rufus"}, "verdict": "yes"},
        5,
        QUESTION,
        ANSWER,
        needs="turns",
    ),
    "role_adherence": _case(
        "role_adherence",
        {"verdicts": []},
        {"verdicts": [{"index": at, "reason": "rude", "ai_message": None} for at in (1, 3)]},
        2,
        QUESTION,
        "a librarian",
        keys={"chatbot_role": "a librarian"},
        needs="turns",
    ),
    "turn_relevancy": _case(
        "turn_relevancy", {"verdict": "yes"}, {"verdict": "no"}, 3, QUESTION, needs="turns"
    ),
    "conversational_geval": _case(
        "conversational_geval",
        {"steps": ["Look for a please"], "score": 10},
        {"steps": ["Look for a please"], "score": 0},
        2,
        QUESTION,
        "Is it polite?",
        keys={"criteria": "Is it polite?"},
        needs="turns",
    ),
}

_ABOUT_STEPS = "actual_output tools_called exchanges"
_PLAN = {"task": "tell the rules", "plan": ["look the rule up"]}
_TURNS = "exchanges retrieval_context"
_SUPPORT = (YES, NO, 5, QUESTION, TRUTH, *PASSAGES)
CASES |= {
    **{
        name: _case(
            name,
            _PLAN | {"score": 1},
            _PLAN | {"score": 0},
            calls,
            *(QUESTION, ANSWER, "rules-search", "9:00"),
            needs=_ABOUT_STEPS,
        )
        for name, calls in (("plan_adherence", 3), ("plan_quality", 3), ("step_efficiency", 2))
    },
    "goal_accuracy": _case(
        "goal_accuracy", {"score": 1}, {"score": 0}, 5, QUESTION, ANSWER, "clock", needs="exchanges"
    ),
    "tool_use": _case(
        "tool_use",
        {"score": 1},
        {"score": 0},
        5,
        QUESTION,
        "clock",
        needs="exchanges tools_called tools",
    ),
    "topic_adherence": _case(
        "topic_adherence",
        {"qa_pairs": [{"question": "dogs?", "response": "yes"}], "verdict": "TP"},
        {"qa_pairs": [{"question": "dogs?", "response": "yes"}], "verdict": "FP"},
        5,
        QUESTION,
        ANSWER,
        "libraries",
        keys={"relevant_topics": ["libraries"]},
        needs="exchanges",
    ),
    "turn_faithfulness": _case(
        "turn_faithfulness",
        *({"truths": ["a truth"], **script} for script in _listed("claims", "yes", "no")),
        6,
        ANSWER,
        *PASSAGES,
        needs=_TURNS,
    ),
    "turn_contextual_relevancy": _case(
        "turn_contextual_relevancy",
        {"verdicts": verdicts("yes", 3, **_SAID)},
        {"verdicts": verdicts("no", 3, **_SAID)},
        7,
        QUESTION,
        *PASSAGES,
        needs=_TURNS,
    ),
    "turn_contextual_precision": _case(
        "turn_contextual_precision", *_SUPPORT, needs=f"{_TURNS} expected_output"
    ),
    "turn_contextual_recall": _case(
        "turn_contextual_recall", YES, NO, 5, TRUTH, *PASSAGES, needs=f"{_TURNS} expected_output"
    ),
}


def said(script: Script, request: Request) -> str:
    """What the judge answers to a question about which its script has something to say."""
    if "response_format" not in request.body:  # a question whose answer is only shown
        return "the reason"
    wanted = request.body["response_format"]["json_schema"]["schema"]["properties"]
    answer = {"reason": "the reason"} if "reason" in wanted else {}
    return json.dumps(answer | {key: script[key] for key in wanted if key != "reason"})


def without(name: str) -> Observation:
    """What is seen without one input."""
    nothing = {
        "expected_output": {"ground_truth": None},
        "retrieval_context": {"retrieval_context": ()},
        "context": {"retrieval_context": ()},
        "input": {"input": None},
        "turns": {"turns": ()},
        "expected_tools": {"expected_tools": None},
    }
    return replace(SEEN, **nothing[name])
