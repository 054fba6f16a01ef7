"""Reporters for the result of a suite: on the terminal, as HTML and as JSON."""

from holodeck.suite.reports.cli_report import CLIReporter
from holodeck.suite.reports.html_report import HTMLReporter
from holodeck.suite.reports.json_report import JSONReporter

__all__ = ["CLIReporter", "HTMLReporter", "JSONReporter"]
