"""Semantic Kernel without the parts nobody here uses; each test in a process of its own."""

import subprocess
import sys

OPENED = """
import sys
from holodeck.lib.backends.semantic_kernel.lean import import_openai_connectors
import_openai_connectors()
"""


def run(script):
    done = subprocess.run(
        [sys.executable, "-c", OPENED + script],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_handlebars_and_webrtc_are_not_loaded():
    assert run("print('pybars' in sys.modules, 'aiortc' in sys.modules)") == "False False"


def test_the_realtime_classes_are_there_for_whoever_wants_them():
    script = """
from semantic_kernel.connectors.ai.open_ai import AzureRealtimeWebRTC, OpenAIRealtimeWebRTC
from semantic_kernel.connectors.ai.realtime_client_base import RealtimeClientBase
print(issubclass(OpenAIRealtimeWebRTC, RealtimeClientBase), AzureRealtimeWebRTC.__module__)
"""

    assert run(script) == ("True semantic_kernel.connectors.ai.open_ai.services.azure_realtime")


def test_a_name_that_never_existed_is_still_an_error():
    script = """
try:
    from semantic_kernel.connectors.ai.open_ai import NoSuchThing
except ImportError as error:
    print('NoSuchThing' in str(error))
"""

    assert run(script) == "True"


def test_handlebars_templates_work_for_whoever_wants_them():
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
