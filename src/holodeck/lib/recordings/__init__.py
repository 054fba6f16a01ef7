"""Recordings: what models and tools answered in a run of a test case, to be replayed."""
