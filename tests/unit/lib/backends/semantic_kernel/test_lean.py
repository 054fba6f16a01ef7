"""Semantic Kernel without the parts nobody here uses; each test in a fork of its own."""

import os
from pathlib import Path

import pytest

from support.nursery import SCRIPT, Nursery

OPENED = """
from holodeck.lib.backends.semantic_kernel.lean import import_openai_connectors
import_openai_connectors()
"""


@pytest.fixture(scope="module")
def run():
    lean = Nursery(OPENED + SCRIPT)

    def ran(script):
        env = dict(os.environ)
        code, out, err = lean.run([script], cwd=Path.cwd(), env=env, stdin=None, timeout=180)
        assert code == 0, err.decode()
        return out.decode().strip()

    return ran


@pytest.mark.parametrize(
    "name",
    [
        "aiortc",
        "azure.core",
        "semantic_kernel.connectors.utils.document_loader",
        "numpy",
        "openai.resources.chat",
        "openai.types.beta",
        "openai.types.responses.response",
        "pybars",
    ],
)
def test_what_a_chat_request_does_not_need_is_not_loaded(run, name):
    assert run(f"import sys; print({name!r} in sys.modules)") == "False"


def test_every_name_of_a_lazy_package_is_what_its_own_code_names(run):
    """Runs the code of each package that was not run, and compares all that it defines."""
    script = """
import importlib, pkgutil
from holodeck.lib.backends.semantic_kernel.lean import LAZY

def compare(package):
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:  # of a provider whose library is not installed
        assert not error.name.startswith(("openai", "semantic_kernel")), error
        return 0
    loader = module.__spec__.loader
    inner = pkgutil.iter_modules(module.__path__, f"{package}.")
    below = [compare(one.name) for one in inner if one.ispkg]
    if type(loader).__name__ != "_LazyLoader":
        return sum(below)
    own = {"__name__": package, "__package__": package, "__path__": module.__path__}
    try:
        exec(compile(loader.get_source(package), package, "exec"), own)
    except ModuleNotFoundError as error:  # as above
        assert not error.name.startswith(("openai", "semantic_kernel")), error
        return sum(below)
    names = {name for name in own if not name.startswith("__")} - {"annotations"}
    assert names == set(module.__all__), package
    for name in names:
        assert getattr(module, name) is own[name], (package, name)
    return sum(below) + len(names)

print(sum(map(compare, LAZY)) > 500)
"""
    assert run(script) == "True"


def test_lazy_packages_work_in_each_way_to_import_a_name(run):
    script = """
import pickle, sys, typing
import openai.types.responses as package
from openai.types.responses import *
from openai.types.chat import ChatCompletion
from openai.types import CompletionUsage, batch
import openai
assert ResponseUsage is package.ResponseUsage is openai.types.responses.ResponseUsage
assert "ResponseUsage" in dir(package) and not hasattr(package, "NoSuchThing")
assert batch is sys.modules["openai.types.batch"]
usage = CompletionUsage(completion_tokens=1, prompt_tokens=2, total_tokens=3)
assert pickle.loads(pickle.dumps(usage)) == usage
assert ChatCompletion.model_fields["usage"].annotation == typing.Optional[CompletionUsage]
answer = {"id": "a", "choices": [], "created": 1, "model": "m", "object": "chat.completion"}
print(ChatCompletion.model_validate(answer | {"usage": usage}).usage is usage)
"""
    assert run(script) == "True"


def test_arrays_are_accepted_without_having_imported_numpy(run):
    script = """
from semantic_kernel.contents import AudioContent
from semantic_kernel.contents.utils.data_uri import DataUri
from pydantic import ValidationError
try:
    DataUri(data_array=[1, 2], mime_type="audio/wav")
except ValidationError:
    print("refused")
import numpy
array = numpy.array([1, 2])
print(DataUri(data_array=array, mime_type="audio/wav").data_array is array)
print(AudioContent(data=array).data == array.tobytes())
print(isinstance(array, numpy.ndarray), numpy.ndarray.__module__)
"""
    assert run(script).splitlines() == ["refused", "True", "True", "True numpy"]


def test_the_realtime_classes_are_there_for_whoever_wants_them(run):
    script = """
from semantic_kernel.connectors.ai.open_ai import AzureRealtimeWebRTC, OpenAIRealtimeWebRTC
from semantic_kernel.connectors.ai.realtime_client_base import RealtimeClientBase
print(issubclass(OpenAIRealtimeWebRTC, RealtimeClientBase), AzureRealtimeWebRTC.__module__)
"""

    assert run(script) == ("True semantic_kernel.connectors.ai.open_ai.services.azure_realtime")


def test_a_name_that_never_existed_is_still_an_error(run):
    script = """
try:
    from semantic_kernel.connectors.ai.open_ai import NoSuchThing
except ImportError as error:
    print('NoSuchThing' in str(error))
"""

    assert run(script) == "True"


def test_handlebars_templates_work_for_whoever_wants_them(run):
    script = """
import asyncio
from semantic_kernel import Kernel
from semantic_kernel.exceptions import HandlebarsTemplateSyntaxError
from semantic_kernel.functions import KernelArguments
from semantic_kernel.prompt_template import HandlebarsPromptTemplate, PromptTemplateConfig

def template(text):
    config = PromptTemplateConfig(name='x', template=text, template_format='handlebars')
    return HandlebarsPromptTemplate(prompt_template_config=config)

print(asyncio.run(template('hi {{name}}').render(Kernel(), KernelArguments(name='Ada'))))
try:
    template('{{#if}')
except HandlebarsTemplateSyntaxError:
    print('refused')
"""

    assert run(script).splitlines() == ["hi Ada", "refused"]
