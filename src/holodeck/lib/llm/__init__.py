"""Clients of language models, for agents, judges and simulated users."""
