"""A user's message together with images."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Image:
    """An image that is sent to a model."""

    data: bytes
    media_type: str
    """Such as `image/png`."""

    @property
    def data_uri(self) -> str:
        """The image as a URL that holds it."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"

    @property
    def part(self) -> dict[str, Any]:
        """The image as a part of a message in OpenAI's protocol."""
        return {"type": "image_url", "image_url": {"url": self.data_uri}}


class MessageWithImages(str):
    """The text of a message, with images, for a backend whose `Capabilities` accept them."""

    __slots__ = ("images",)
    images: tuple[Image, ...]

    def __new__(cls, text: str, images: Iterable[Image]) -> "MessageWithImages":
        """Return the message; whoever reads it as a string sees its text only."""
        message = super().__new__(cls, text)
        message.images = tuple(images)
        return message
