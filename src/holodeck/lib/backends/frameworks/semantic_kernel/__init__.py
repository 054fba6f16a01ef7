"""Agents, kernels and orchestrations that a user made with Semantic Kernel."""
