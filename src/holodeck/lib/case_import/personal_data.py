"""Chooses the cases to import, and replaces what identifies people in their texts."""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.case_import.case import Imported, ImportedCase, LoggedCall, LoggedTurn
from holodeck.lib.secrets.redact import is_secret_entry
from holodeck.lib.support.text import plural


def leave_out_duplicates(imported: Imported) -> None:
    """Keep the first case of those in which the user says the same, and note the others.

    Upper and lower case, white space and punctuation make no difference, expectations do.
    """
    first: dict[object, ImportedCase] = {}
    for case in imported.cases:
        key = (case.user_key, repr(case.evaluations), repr(case.criteria))
        kept = first.setdefault(key, case)
        if kept is not case:
            imported.note(case.location, f"left out: the user says the same at {kept.location}")
    imported.cases = list(first.values())


def split_turns(cases: Sequence[ImportedCase]) -> list[ImportedCase]:
    """Return a case for each turn, with the turns before as its history."""
    found = []
    for case in cases:
        for index, turn in enumerate(case.turns):
            is_last = index == len(case.turns) - 1
            name = f"{case.label} (turn {index + 1})" if len(case.turns) > 1 else case.name
            found.append(
                ImportedCase(
                    location=case.location,
                    turns=[turn],
                    name=name,
                    tags=case.tags,
                    evaluations=case.evaluations if is_last else [],
                    criteria=case.criteria if is_last else [],
                    todo=case.todo if is_last else [],
                    history=[*case.history, *case.turns[:index]],
                )
            )
    return found


def choose(imported: Imported, limit: int | None, sample: int | None, seed: int) -> None:
    """Keep a random sample, or the first cases, in the order of the source, and note the others."""
    cases = imported.cases
    if sample is not None and sample < len(cases):
        kept = sorted(random.Random(seed).sample(range(len(cases)), sample))  # noqa: S311
        imported.cases = [cases[index] for index in kept]
        left = plural(len(cases) - sample, "case")
        imported.note("--sample", f"{left} not chosen (seed {seed})")
    cases = imported.cases
    if limit is not None and limit < len(cases):
        imported.cases = cases[:limit]
        imported.note("--limit", f"{plural(len(cases) - limit, 'case')} left out")


PATTERNS: Mapping[str, str] = {
    "email": r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "iban": r"(?<![\w-])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7} ?[A-Z0-9]{1,4}(?![\w-])",
    "card": r"(?<![\d.-])(?:\d{4}[ -]){3}\d{1,7}(?![\d-])",
    "phone": r"(?<![\w.+-])(?:\+\d[\d ()./-]{6,18}\d|\(0?\d{2,5}\)[ -]?\d[\d -]{4,12}\d"
    r"|0\d{1,4}[ /-]\d[\d -]{4,12}\d|\d{3}[ .-]\d{3}[ .-]\d{4})(?![\w-])",
}
"""What is replaced by `<name>`, in this order; `--redact NAME=REGEX` adds further patterns."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
Redact = Callable[[str], str]


def make_redact(redact_secrets: Redact, more: Iterable[str] = ()) -> Redact:
    """Return a function that replaces secrets and personal data; `more` are `NAME=REGEX`.

    Raises ConfigError for a pattern that is not valid.
    """
    patterns = [(f"<{name}>", re.compile(one)) for name, one in PATTERNS.items()]
    patterns += map(_own_pattern, more)

    def redact(text: str) -> str:
        text = redact_secrets(text)
        for replacement, pattern in patterns:
            text = pattern.sub(replacement, text)
        return text

    return redact


def redact_case(case: ImportedCase, redact: Redact) -> ImportedCase:
    """Return the case without secrets and personal data, wherever they are."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, Mapping):
            return {
                redact(str(key)): "***" if is_secret_entry(key, item) else clean(item)
                for key, item in value.items()
            }
        return [clean(one) for one in value] if isinstance(value, list) else value

    def call(one: LoggedCall) -> LoggedCall:
        return LoggedCall(clean(one.name), clean(one.arguments), clean(one.id), clean(one.result))

    def turns(found: list[LoggedTurn]) -> list[LoggedTurn]:
        return [
            LoggedTurn(clean(one.user), clean(one.answer), [*map(call, one.calls)]) for one in found
        ]

    return ImportedCase(
        location=redact(case.location),
        turns=turns(case.turns),
        name=clean(case.name),
        tags=clean(case.tags),
        evaluations=clean(case.evaluations),
        criteria=clean(case.criteria),
        todo=clean(case.todo),
        history=turns(case.history),
    )


def _own_pattern(written: str) -> tuple[str, re.Pattern[str]]:
    name, equals, pattern = written.partition("=")
    if not equals or not _NAME.fullmatch(name) or not pattern:
        raise ConfigError(
            "--redact", f"found {written!r}; expected NAME=REGEX such as 'order=A-[0-9]+'"
        )
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise ConfigError("--redact", f"{pattern!r} is no regular expression: {error}") from error
    if found.search("") is not None:
        raise ConfigError("--redact", f"{pattern!r} matches the empty text, so it marks everything")
    return f"<{name}>", found
