"""The module `scenario.cache`, which can be called as the decorator of the same name.

Importing the module puts it in the place of the decorator in `holodeck.scenario`; so that
`@scenario.cache()` works before and after that, a call of the module is one of the decorator.
"""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from holodeck.lib.conversation.script_run import running as context_scenario
from holodeck.scenario.caching import NotRecorded
from holodeck.scenario.caching import cache as scenario_cache

__all__ = ["NotRecorded", "context_scenario", "scenario_cache"]


class _Decorator(ModuleType):
    def __call__(self, ignore: Sequence[str] = ()) -> Any:
        return scenario_cache(ignore)


sys.modules[__name__].__class__ = _Decorator
