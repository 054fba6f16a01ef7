"""The JSON Schema of agent.yaml, for editors: draft-07, made from the models."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from holodeck.config.flags import format_default
from holodeck.config.settings import OTHER_VARIABLES, setting_fields
from holodeck.models.config import GlobalConfig
from holodeck.models.evaluation import BUILT_IN, BY_TYPE, CustomMetric
from holodeck.models.llm import PROVIDER_VARIABLES
from holodeck.models.metric import MetricSettings
from holodeck.models.suite import AgentFile

DIALECT = "http://json-schema.org/draft-07/schema#"


class _Schema(GenerateJsonSchema):
    """Without titles that only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """What a mapping of this model may hold."""
    schema = model.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Schema)
    definitions = schema.pop("$defs", {})
    return {**schema, "definitions": definitions}


def agent_schema() -> dict[str, Any]:
    """What an agent.yaml may hold."""
    schema = {**schema_of(AgentFile), "title": "holodeck agent.yaml"}
    return {"$schema": DIALECT, **_for_draft_07(_without_null_defaults(schema))}


def schema_text() -> str:
    """The schema as the file that is published."""
    return json.dumps(agent_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_null_defaults(value: Any) -> Any:
    """A default of null says nothing to an editor and is left out."""
    if isinstance(value, list):
        return [_without_null_defaults(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_null_defaults(one)
        for key, one in value.items()
        if not (key == "default" and one in (None, ""))
    }


def _for_draft_07(value: Any) -> Any:
    """Draft-07 ignores what stands beside `$ref`, so a reference with neighbours is wrapped."""
    if isinstance(value, list):
        return [_for_draft_07(one) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _for_draft_07(one) for key, one in value.items()}
    if isinstance(changed.get("$ref"), str) and len(changed) > 1:
        reference = changed.pop("$ref")
        return {"allOf": [{"$ref": reference}], **changed}
    return changed


Schema = Mapping[str, Any]

METRICS: tuple[type[MetricSettings], ...] = tuple(
    dict.fromkeys([*BUILT_IN.values(), CustomMetric, *chain(*BY_TYPE.values())])
)
METRIC_NAMES = frozenset(one.__name__ for one in METRICS)
_HEAD = """\
# Configuration reference

<!-- Made by scripts/docs from the models; edit those. -->

Unknown keys are errors. Relative paths start at the folder of the agent.yaml and stay inside it.
In values, `${VAR}` becomes a variable's text, `${VAR:-text}` has a default, and `$${VAR}` stays
`${VAR}`. Variables come from the environment, then from `.env` beside the agent.yaml, in the
working folder and in the user's folder (`~/.holodeck`, `$XDG_CONFIG_HOME/holodeck`).
"""
_OF_METRICS = "metrics[]."
_SETTINGS = """\
## Settings of a run

The first place that says something wins: flag, `execution` in agent.yaml, `config.yaml` beside
it, the user's `config.yaml`, variable, default. `holodeck config show` lists every setting with its
value and source; a variable that a `config.yaml` overrules is told on stderr, once a run.

| Key of `execution` | Flag | Variable | Default | Meaning |
| --- | --- | --- | --- | --- |
"""
_VARIABLES = """\
## Variables of the providers

What `model` leaves out is taken from here.

| Provider | `api_key` | `endpoint` | `api_version` |
| --- | --- | --- | --- |
"""


def reference_text() -> str:
    """docs/reference/configuration.md."""
    return "\n".join(
        [
            _HEAD,
            *_Page("agent.yaml", AgentFile).sections(),
            *_metrics(),
            _SETTINGS + "".join(_setting_rows()),
            _other_variables(),
            _VARIABLES + "".join(_provider_rows()),
            *_Page("config.yaml", GlobalConfig).sections(),
        ]
    )


class _Page:
    """One file's keys: a section for the file and one for each mapping in it."""

    def __init__(self, title: str, model: type[BaseModel]) -> None:
        self._title = title
        self._model = model
        self._schema = schema_of(model)
        self._definitions: Mapping[str, Schema] = self._schema["definitions"]
        self._headings: dict[str, str] = {}
        self._find_headings(self._schema, "")
        for metric in METRICS:
            self._find_headings(self._definitions.get(metric.__name__, {}), _OF_METRICS)

    def sections(self) -> Iterator[str]:
        yield self._section(f"## {self._title}", self._schema, self._model)
        for name, heading in self._headings.items():
            if not heading.startswith(_OF_METRICS):
                yield self._section(f"## {heading}", self._definitions[name], _class(name))

    def parts_of_metrics(self) -> Iterator[str]:
        """A section for each mapping that only metrics hold, such as the bands of a rubric."""
        for name, heading in sorted(self._headings.items(), key=lambda one: one[1]):
            if heading.startswith(_OF_METRICS):
                yield self._section(f"### {heading}", self._definitions[name], _class(name))

    def rows(self, schema: Schema, without: set[str] | None = None) -> str:
        """The table's rows, one a key."""
        required = schema.get("required", [])
        rows = ""
        for key, value in schema["properties"].items():
            if key in (without or ()):
                continue
            default = "**required**" if key in required else _default(value)
            cells = (f"`{key}`", self._type(value), default, value.get("description", ""))
            rows += "| " + " | ".join(_cell(cell) for cell in cells) + " |\n"
        return rows

    def _find_headings(self, schema: Schema, above: str) -> None:
        """A section's heading is the path of its key, such as `test_cases[].files[]`."""
        for key, value in schema.get("properties", {}).items():
            brackets = "[]" if '"items"' in json.dumps(value) else ""
            path = f"{above}{key}{brackets}"
            for name in _references(value):
                if self._has_section(name) and name not in self._headings:
                    self._headings[name] = path
                    self._find_headings(self._definitions[name], f"{path}.")

    def _has_section(self, name: str) -> bool:
        elsewhere = name == "ExecutionConfig" or name in METRIC_NAMES
        return not elsewhere and "enum" not in self._definitions[name]

    def _section(self, heading: str, schema: Schema, model: type[BaseModel]) -> str:
        description = str(schema.get("description", "")).replace("\n", " ")
        table = _table(self.rows(schema))
        return f"{heading}\n\n{description}\n\n{table}{_not_yet(model)}"

    def _type(self, value: Schema) -> str:
        """A JSON schema in words."""
        for union in ("anyOf", "oneOf", "allOf"):
            if union in value:
                names = [self._type(one) for one in value[union] if one != {"type": "null"}]
                return " or ".join(dict.fromkeys(names))
        if "$ref" in value:
            return self._link(value["$ref"].rpartition("/")[2])
        if "const" in value or "enum" in value:
            return ", ".join(f"`{one}`" for one in value.get("enum", [value.get("const")]))
        if value.get("type") == "array":
            return f"list of {self._type(value.get('items', {}))}{_range(value, 'Items')}"
        return _WORDS.get(str(value.get("type")), "any value") + _range(value, "imum")

    def _link(self, name: str) -> str:
        if name in self._headings:
            heading = self._headings[name]
            return f"[mapping](#{re.sub(r'[^a-z_]', '', heading)})"
        if "enum" in self._definitions[name]:
            return self._type(self._definitions[name])
        if name in METRIC_NAMES:
            return "[metric](#metrics)"
        if name == "ExecutionConfig":
            return "[settings](#settings-of-a-run)"
        raise LookupError(f"the shape of {name} is documented nowhere")


_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for one in value.values():
            yield from _references(one)
    if isinstance(value, list):
        for one in value:
            yield from _references(one)


def _class(name: str) -> type[BaseModel]:
    """The model of ours that a definition was made from."""
    return next(one for one in _subclasses(BaseModel) if one.__name__ == name)


def _subclasses(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in model.__subclasses__():
        if one.__module__.startswith("holodeck.models"):
            yield one
        yield from _subclasses(one)


def _metrics() -> Iterator[str]:
    """A table of what every metric has, then one of what each adds."""
    page = _Page("agent.yaml", AgentFile)
    common = MetricSettings.model_json_schema()
    shared = set(common["properties"])
    yield (
        "## Metrics\n\nA metric is a mapping with the key `metric`, or with a `type` of its own."
        f" Every metric has:\n\n{_table(page.rows(common))}"
    )
    for model in METRICS:
        rows = page.rows(schema_of(model), without=shared)
        yield (
            f"### {_heading(model)}\n\n{model.__doc__}\n"
            + (f"\n{_table(rows)}" if rows else "")
            + _not_yet(model)
        )
    yield from page.parts_of_metrics()


def _heading(model: type[MetricSettings]) -> str:
    """How a metric is written down."""
    kinds = [f"`type: {kind}`" for kind, models in BY_TYPE.items() if model in models]
    names = [f"`{name}`" for name, one in BUILT_IN.items() if one is model]
    return " or ".join(kinds or names) or "`module:callable`"


def _table(rows: str) -> str:
    return f"| Key | Type | Default | Meaning |\n| --- | --- | --- | --- |\n{rows}"


def _default(value: Schema) -> str:
    default = value.get("default")
    if default is None or default in ("", {}, []) or "$ref" in value:
        return ""
    text = default if isinstance(default, str) else json.dumps(default)
    return f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


def _range(value: Schema, unit: str) -> str:
    words = {
        f"min{unit}": "from",
        "exclusiveMinimum": "above",
        f"max{unit}": "to",
        "exclusiveMaximum": "below",
    }
    parts = [f"{word} {value[key]:g}" for key, word in words.items() if key in value]
    return f" ({' '.join(parts)})" if parts else ""


def _not_yet(model: type[BaseModel]) -> str:
    keys = getattr(model, "not_yet", {})
    if not keys:
        return ""
    return f"\nNot supported yet, and refused: {', '.join(f'`{key}`' for key in keys)}.\n"


def _setting_rows() -> Iterator[str]:
    for one in setting_fields().values():
        flags = ", ".join(f"`{flag}`" for flag in one.setting.flags)
        default = format_default(one.setting.default)
        cells = (f"`{one.field}`", flags, f"`{one.variable}`", default, one.setting.description)
        yield "| " + " | ".join(cells) + " |\n"


def _other_variables() -> str:
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in OTHER_VARIABLES.items())
    return f"## Other variables\n\n| Variable | Meaning |\n| --- | --- |\n{rows}"


def _provider_rows() -> Iterator[str]:
    for provider, names in PROVIDER_VARIABLES.items():
        cells = (names.api_key, names.endpoint, names.api_version)
        texts = [", ".join(f"`{name}`" for name in cell) for cell in cells]
        yield f"| `{provider}` | " + " | ".join(texts) + " |\n"
