"""Runnables of LangChain and graphs of LangGraph."""
