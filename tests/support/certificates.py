"""Reads the certificates of authorities once; else each HTTP client takes 30 ms to read them."""

import functools
import os
import ssl
from typing import Any

import certifi


def read_once() -> None:
    """From now on what is made for the same file of certificates is the same, and read already."""
    made = ssl.create_default_context
    known = functools.cache(made)

    def context(*args: Any, **options: Any) -> ssl.SSLContext:
        return (known if options.get("cafile") else made)(*args, **options)

    ssl.create_default_context = context
    context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())
