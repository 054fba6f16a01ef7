"""Metrics of Azure AI Evaluation beside those of `azure_ai`, and the adapter of the library."""
