"""Checks of a test case: tools, their order and results, spans, turns."""
