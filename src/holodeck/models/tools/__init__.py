"""The kinds of tools in an agent.yaml."""
