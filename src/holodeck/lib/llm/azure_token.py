"""Tokens of Microsoft Entra ID for Azure OpenAI resources without keys."""

import time

from holodeck.lib.llm.errors import RequestError
from holodeck.lib.support.text import one_line
from holodeck.models.llm import PROVIDERS, ProviderEnum

SCOPE = "https://cognitiveservices.azure.com/.default"
REFRESH_BEFORE_S = 300
"""A token is replaced so long before it expires."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_of_azure(host: str) -> bool:
    """Whether a token may be sent to the host: it opens every resource that the user may use."""
    domains = PROVIDERS[ProviderEnum.AZURE_OPENAI].own_domains
    return host in _LOOPBACK or any(host.endswith(f".{domain}") for domain in domains)


class EntraTokens:
    """Gets tokens from the credentials of this machine, as Azure's tools do.

    A token is kept until shortly before it expires.
    """

    def __init__(self) -> None:
        self._token = ""
        self._expires = 0.0

    async def get(self) -> str:
        """Return a token that is valid now. Raises RequestError."""
        if time.time() < self._expires - REFRESH_BEFORE_S:
            return self._token
        from azure.core.exceptions import AzureError
        from azure.identity.aio import DefaultAzureCredential

        try:
            # A credential belongs to one event loop; a token is used on all.
            async with DefaultAzureCredential() as credential:
                token = await credential.get_token(SCOPE)
        except AzureError as error:
            reason = one_line(str(error).partition("\n")[0], 200)
            raise RequestError(
                "no API key is set (AZURE_OPENAI_API_KEY), and no token of Entra ID could be got:"
                f" {reason}; 'az login' signs in",
                refusal="key",
            ) from error
        self._token, self._expires = token.token, float(token.expires_on)
        return self._token
