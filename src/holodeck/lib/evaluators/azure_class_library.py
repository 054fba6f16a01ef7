"""What the evaluator classes of Azure AI Evaluation do not declare themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.evaluators import azure_ai, azure_labels
from holodeck.lib.evaluators.azure_adapter import Scale, library_classes
from holodeck.lib.evaluators.azure_class_inputs import Input
from holodeck.lib.registry import load_attribute
from holodeck.lib.suggestions import did_you_mean_or_list

LIBRARY = "azure.ai.evaluation."
YES_NO = Scale(worst=0, best=1)
_FOUND = Scale(worst=1, best=0)
"""The label says that something bad was found."""


@dataclass(frozen=True, slots=True)
class KnownClass:
    """What a class of the library does not declare itself."""

    scale: Scale = YES_NO
    scales: Mapping[str, Scale] = field(default_factory=dict)
    """The scale of each score, by its key, if there are several."""
    by_turn: bool = False
    """Whether it judges the tool calls of one turn, so that the worst turn counts."""
    inputs: tuple[Input, ...] = ()
    """The inputs, where `__call__` does not name them."""


_MESSAGES = tuple(Input(one, True, True) for one in ("query", "response", "tool_definitions"))
KNOWN = {
    "TaskCompletionEvaluator": KnownClass(),
    "TaskNavigationEfficiencyEvaluator": KnownClass(),
    "ToolCallSuccessEvaluator": KnownClass(by_turn=True),
    "ToolInputAccuracyEvaluator": KnownClass(by_turn=True, inputs=_MESSAGES),
    "ToolOutputUtilizationEvaluator": KnownClass(by_turn=True),
    "ToolSelectionEvaluator": KnownClass(by_turn=True, inputs=_MESSAGES),
    "UngroundedAttributesEvaluator": KnownClass(_FOUND),
    "ECIEvaluator": KnownClass(_FOUND),
    "QAEvaluator": KnownClass(
        scales={
            **dict.fromkeys(
                ("groundedness", "relevance", "coherence", "fluency", "similarity"),
                Scale(worst=1, best=5),
            ),
            "f1_score": YES_NO,
        }
    ),
    "GleuScoreEvaluator": KnownClass(),
}
ROWS: dict[str, type[azure_ai.AzureAIEvaluator]] = {
    one.library_class: one
    for one in vars(azure_ai).values()
    if isinstance(one, type)
    and issubclass(one, azure_ai.AzureAIEvaluator)
    and "library_class" in vars(one)
}
"""The judged classes of the library that have a name under `metric:`."""
_NAMES = {
    "BleuScoreEvaluator": "bleu",
    "F1ScoreEvaluator": "f1_score",
    "MeteorScoreEvaluator": "meteor",
    "RougeScoreEvaluator": "rouge",
    "DocumentRetrievalEvaluator": "document_retrieval",
    "ContentSafetyEvaluator": "safety",
    **{name: one.metric for name, one in ROWS.items()},
    **{
        name: harm for harm, name in azure_ai.ContentSafetyEvaluator.harms.items()
    },
    **{
        one.library_class: one.metric
        for one in vars(azure_labels).values()
        if isinstance(one, type)
        and issubclass(one, azure_labels.LabelEvaluator)
        and "library_class" in vars(one)
    },
}  # fmt: skip


def find_class(name: str, base_dir: Path | None = None) -> type[Any]:
    """Return the evaluator class. Raises ConfigError."""
    if ":" in name:
        found = load_attribute(name, base_dir, location="class")
        if not isinstance(found, type) or not callable(getattr(found, "__call__", None)):  # noqa: B004
            raise ConfigError("class", f"{name!r} is not a class")
        if "__call__" not in {key for one in found.__mro__ for key in vars(one)}:
            raise ConfigError(
                "class", f"{name!r} is no evaluator: its objects cannot be called (no __call__)"
            )
        return found
    known = library_classes().by_name
    short = name.removeprefix(LIBRARY).lstrip("_")
    if short in _NAMES:
        raise ConfigError(
            "class", f"{short} has a name; write 'metric: {_NAMES[short]}' instead of 'class'"
        )
    if short not in known:
        hint = did_you_mean_or_list(short, known.keys() - _NAMES.keys())
        raise ConfigError("class", f"Azure AI Evaluation has no evaluator class {short!r}{hint}")
    if short not in KNOWN and issubclass(known[short], library_classes().service):
        raise ConfigError(
            "class", f"holodeck does not know what {short} reports if the project gives no verdict"
        )
    return known[short]
