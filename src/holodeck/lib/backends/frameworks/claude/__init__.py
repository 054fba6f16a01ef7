"""Agents of the Claude Agent SDK."""
