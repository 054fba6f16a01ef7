"""Backends: ways to reach an agent, all behind one protocol."""
