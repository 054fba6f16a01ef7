"""Simulated users that attack the agent under test, to find what it should have refused."""
