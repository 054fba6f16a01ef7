"""The one adapter for Semantic Kernel: services, retries, tools, and reading the history.

Importing it imports Semantic Kernel, so everybody else imports it inside functions.
"""

from holodeck.lib.processes.process_exit import collector_paused
from holodeck.lib.ui.activity import loading

with loading("Semantic Kernel", "semantic_kernel"), collector_paused():
    import semantic_kernel  # noqa: F401
