"""`{{name}}`, which stands for a value in the texts of a case."""

import re

PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][\w-]*)\s*\}\}")
