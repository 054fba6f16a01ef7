"""The one adapter for Semantic Kernel: services, retries, tools, and reading the history.

Importing it imports Semantic Kernel, so everybody else imports it inside functions.
"""

from holodeck.lib.backends.semantic_kernel.lean import import_semantic_kernel

import_semantic_kernel()
