"""The one door to Semantic Kernel: services, resilience, tools, and reading what was said.

Importing any module of this package imports Semantic Kernel, so others import it inside functions.
"""
