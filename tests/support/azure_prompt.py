"""An evaluator class of the user on Azure AI Evaluation's base for prompts."""

from pathlib import Path

MODULE = '''
from pathlib import Path

from azure.ai.evaluation._evaluators._common import PromptyEvaluatorBase


class Prompts(PromptyEvaluatorBase):
    """Has a prompt of its own."""

    def __init__(self, model_config):
        path = Path(__file__).with_name("polite.prompty")
        super().__init__(result_key="polite", prompty_file=str(path), model_config=model_config,
                         threshold=3, _higher_is_better=True)

    def __call__(self, *, query: str, response: str):
        return super().__call__(query=query, response=response)
'''
PROMPTY = """---
name: polite
model:
  api: chat
  parameters: {temperature: 0.0}
inputs:
  query: {type: string}
  response: {type: string}
---
system:
You rate politeness.

user:
{{query}} => {{response}}
"""
KEYS = {"type": "azure", "class": "rater:Prompts", "scale": [1, 5]}
"""The metric in agent.yaml."""


def write_rater(folder: Path) -> None:
    """Write the module and the prompt of the class."""
    (folder / "rater.py").write_text(MODULE)
    (folder / "polite.prompty").write_text(PROMPTY)
