"""Checks of an agent file that need no run: each finding names its key and its line."""
