"""Agents and workflows of Microsoft Agent Framework."""
