"""Agents on any OpenAI-compatible endpoint: a plain loop over one thin HTTP client."""
