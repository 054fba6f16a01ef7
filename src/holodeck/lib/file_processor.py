"""The file processor under its documented path; it lives in `holodeck.lib.files`."""

from holodeck.lib.files.processor import FileProcessor

__all__ = ["FileProcessor"]
