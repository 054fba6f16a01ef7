"""Agents that are Python code: `backend: "module:attribute"`, in this process or in others."""
