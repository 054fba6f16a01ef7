"""Errors that are also the built-in ones which code written for other suites catches."""

import builtins

from holodeck import errors
from holodeck.errors import ConfigError


class NoSuchFile(errors.FileNotFoundError, builtins.FileNotFoundError):
    """A scenario file that is not there."""


class NotAFolder(errors.FileNotFoundError, NotADirectoryError):
    """A folder of scenario files that is none."""


class BadScenarioFile(ConfigError, ValueError):
    """A scenario file whose content is wrong."""


class UnknownScorer(ConfigError, KeyError):
    """A scorer of a name that nothing is registered under."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"  # a KeyError shows its message in quotes
