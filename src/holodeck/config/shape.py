"""Which keys a place of the configuration knows, read off the models."""

from pydantic import BaseModel

from holodeck.models.base import models_in
from holodeck.models.evaluation import BUILT_IN, BY_TYPE


def known_keys(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """The keys that the mapping at `path` may have; a union's tag may be part of the path."""
    models = {model}
    for part in path:
        models = _step(models, part)
    keys = [key for one in sorted(models, key=lambda m: m.__name__) for key in keys_of(one)]
    return list(dict.fromkeys(keys))


def keys_of(model: type[BaseModel]) -> list[str]:
    """A model's keys as they are written in YAML."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _step(models: set[type[BaseModel]], part: str | int) -> set[type[BaseModel]]:
    if isinstance(part, int):
        return models
    named = {BUILT_IN.get(part), *BY_TYPE.get(part, ())}
    tagged = {one for one in models if one in named or one.__name__ == part}
    if tagged:
        return tagged
    below = {
        found
        for one in models
        for name, field in one.model_fields.items()
        if part in (name, field.alias)
        for found in models_in(field.annotation)
    }
    return below or models
