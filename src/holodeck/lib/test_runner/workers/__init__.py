"""Processes that run the cases of a run beside each other."""
