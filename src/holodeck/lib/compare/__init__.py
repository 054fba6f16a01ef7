"""Comparing runs and agents: pairs of results, trajectories, the gate."""
