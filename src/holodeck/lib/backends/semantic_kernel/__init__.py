"""The one door to Semantic Kernel: services, resilience, tools, and reading what was said.

Importing it imports Semantic Kernel, so everybody else imports it inside functions.
"""

from holodeck.lib.backends.semantic_kernel.lean import import_semantic_kernel

import_semantic_kernel()
