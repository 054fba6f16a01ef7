"""Agents in processes of their own: `backend: {type: process, …}`."""
