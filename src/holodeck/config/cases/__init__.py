"""Test cases from wherever an agent.yaml says they are, gathered into a list."""
