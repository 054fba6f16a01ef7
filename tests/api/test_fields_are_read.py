"""A key that an agent.yaml may hold does something: some code reads the field behind it.

To read is to access the attribute, or to name it to a function or loop, outside of `models`, in a
module that names the field's model (or one of its relatives, or a model that holds it); so reading
`tool.name` does not make `metric.name` a field that is read.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

import holodeck
from holodeck.models.agent import KEYS_WITHOUT_EFFECT, Agent, AgentFile
from holodeck.models.base import Model
from holodeck.models.config import GlobalConfig

SOURCES = Path(holodeck.__file__).parent
FOR_PEOPLE = {
    "Agent.description",
    "Agent.author",
    "SuiteHeader.description",
    "TestCaseModel.description",
}
"""Notes of whoever writes the file; their documentation says that nothing reads them."""

WITHOUT_EFFECT = {
    *(f"Agent.{key}" for key in KEYS_WITHOUT_EFFECT),
    "ClaudeConfig.permission_mode",
    "AzureMetric.scale",
    "McpTool.load_prompts",
    "McpTool.registry_name",
    "ProviderSettings.auth_provider",
}
"""What `holodeck validate` says to have no effect, and keys that only say how others are meant."""

CHOOSING = {
    "Agent.retrieval_tools",
    "CalledFunction.arguments",
    "CalledFunction.name",
    "CodeMetric.grader",
    "FunctionTool.is_retrieval",
    *(f"PassagePaths.{key}" for key in ("text", "source")),
    "ModelFault.cut_off",
    "ModelFault.delay",
    "RAGMetric.metric_type",
    *(f"StandIns.{key}" for key in ("model_faults", "model_replies", "tools_in_test")),
    *(f"ToolCallPaths.{key}" for key in ("name", "result", "call_id", "agent")),
    "TrustRule.max_false_passes",
    "TrustRule.min_kappa",
    "VectorStoreSettings.options",
    "VectorstoreTool.chunk_size",
    "VectorstoreTool.vector_field",
}
"""What properties and validators of the models read, such as `evaluator_name` and `retrieves`."""


def test_every_key_of_the_configuration_is_read_by_some_code():
    assert (
        unread([Agent, AgentFile, GlobalConfig], list(modules()))
        <= FOR_PEOPLE | WITHOUT_EFFECT | CHOOSING
    )


class Leaf(Model):
    seen: int = 1
    unseen: int = 2


class Branch(Model):
    kind: Literal["branch"] = "branch"
    leaves: list[Leaf | None] = []
    ratio: float = 0.5


ALL = "b.leaves, b.ratio, x.seen, x.unseen"


@pytest.mark.parametrize(
    ("source", "left"),
    [
        (f"Branch; Leaf; {ALL}", set()),
        ("Branch; b.leaves[0].seen; b.ratio", {"Leaf.unseen"}),
        (f"Leaf; {ALL}", {"Branch.leaves", "Branch.ratio"}),
        (ALL, {"Branch.leaves", "Branch.ratio", "Leaf.seen", "Leaf.unseen"}),
        ("Branch; b.ratio = 1; b.leaves; x.seen; x.unseen", {"Branch.ratio"}),
    ],
    ids=["all", "never named", "about another model", "about no model", "only written"],
)
def test_a_field_counts_as_read_only_where_its_model_is_meant(source, left):
    assert unread([Branch], [ast.parse(source)]) == left


def unread(roots: list[type[Model]], trees: list[ast.Module]) -> set[str]:
    """`Model.field` of every field that none of the sources reads."""
    models = reachable(roots)
    sources = [(names_in(tree), reads_in(tree)) for tree in trees]
    return {name for model in models for name in unread_of(model, models, sources)}


def unread_of(
    model: type[Model], models: list[type[Model]], sources: list[tuple[set[str], set[str]]]
) -> Iterator[str]:
    own = homes(model, models)
    read = set[str]().union(*(reads for names, reads in sources if own & names))
    for field, info in model.model_fields.items():
        if not is_tag(info.annotation) and read.isdisjoint({field, info.alias}):
            yield f"{declarer(model, field).__name__}.{field}"


def reachable(roots: list[type[Model]]) -> list[type[Model]]:
    """The models that a document of these models can hold."""
    found: list[type[Model]] = []
    waiting = list(roots)
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.append(model)
            waiting += [
                one for info in model.model_fields.values() for one in held(info.annotation)
            ]
    return found


def held(annotation: object) -> Iterator[type[Model]]:
    """The models that a value of the type can hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from held(part)


def homes(model: type[Model], models: list[type[Model]]) -> set[str]:
    """Names whose appearance in a module tells that it may be about the model."""
    holders = [
        one for one in models if any(model in held(i.annotation) for i in one.model_fields.values())
    ]
    relatives = [one for one in (*models, *model.__mro__) if related(one, model)]
    return {one.__name__ for one in (*relatives, *holders)}


def related(one: type, other: type) -> bool:
    """Whether one of the two is made from the other."""
    shared = {Model, BaseModel, object}
    return one not in shared and (issubclass(one, other) or issubclass(other, one))


def declarer(model: type[Model], field: str) -> type[Model]:
    """The class whose body declares the field."""
    return next(one for one in model.__mro__ if field in vars(one).get("__annotations__", {}))


def is_tag(annotation: object) -> bool:
    """Whether the field can hold one word only; pydantic reads it when it chooses the model."""
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


def modules() -> Iterator[ast.Module]:
    for path in SOURCES.rglob("*.py"):
        if SOURCES / "models" not in path.parents:
            yield ast.parse(path.read_text(encoding="utf-8"))


def names_in(tree: ast.Module) -> set[str]:
    """Every name, also those inside of annotations written as text."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | texts(ast.walk(tree))


def reads_in(tree: ast.Module) -> set[str]:
    """The attributes that are read, and the names that functions and loops are given."""
    nodes = list(ast.walk(tree))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    given = [node.args for node in nodes if isinstance(node, ast.Call)]
    given += [node.elts for node in nodes if isinstance(node, ast.Tuple)]
    read = {node.attr for node in attributes if isinstance(node.ctx, ast.Load)}
    return read | texts(part for parts in given for part in parts)


def texts(nodes: Iterable[ast.AST]) -> set[str]:
    """Every string among the nodes that is nothing but a name."""
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    return {text for text in values if isinstance(text, str) and text.isidentifier()}
