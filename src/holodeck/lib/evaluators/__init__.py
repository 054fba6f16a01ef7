"""Checks: each turns what was observed into a score."""
