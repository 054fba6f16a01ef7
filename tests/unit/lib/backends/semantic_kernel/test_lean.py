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


def test_handlebars_and_webrtc_are_not_loaded(run):
    assert (
        run("import sys; print('pybars' in sys.modules, 'aiortc' in sys.modules)") == "False False"
    )


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
