"""The Markdown report of a run, by its documented path."""

from holodeck.lib.reports.markdown_report import generate_markdown_report

__all__ = ["generate_markdown_report"]
