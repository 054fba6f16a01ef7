"""Images: what they are, and the text in them by OCR."""

import shutil
import subprocess

from holodeck.models.cases.history import Image

MEDIA_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
    b"II*\x00": "image/tiff",
    b"MM\x00*": "image/tiff",
}
MODEL_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What models take."""
MAX_MODEL_BYTES = 20_000_000
"""The largest image that providers take."""
NO_PROGRAM = (
    "reading text from an image needs the program 'tesseract', which is not installed; install it"
    " (on Debian: apt install tesseract-ocr), or test an agent whose model takes images"
)


def media_type_of(data: bytes) -> str:
    """Return the media type of an image, by its content. Raises ValueError."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    for signature, media_type in MEDIA_TYPES.items():
        if data.startswith(signature):
            return media_type
    raise ValueError("is not an image; PNG, JPEG, GIF, WebP, BMP and TIFF are read")


def image_for_models(data: bytes) -> Image:
    """Return an image as models take it. Raises ValueError."""
    media_type = media_type_of(data)
    if media_type not in MODEL_MEDIA_TYPES:
        kind = media_type.removeprefix("image/").upper()
        raise ValueError(f"is a {kind} image, which models do not take; save it as PNG or JPEG")
    if len(data) > MAX_MODEL_BYTES:
        size, most = len(data) / 1e6, MAX_MODEL_BYTES / 1e6
        raise ValueError(f"is {size:,.1f} MB large; models take images of at most {most:g} MB")
    return Image(data, media_type)


def ocr_program() -> str:
    """Return the path of the program for OCR. Raises ValueError if it is not installed."""
    path = shutil.which("tesseract")
    if path is None:
        raise ValueError(NO_PROGRAM)
    return path


def read_text(data: bytes, program: str) -> str:
    """Return the text in an image, as the program reads it. Raises ValueError."""
    done = subprocess.run(  # the caller's limits apply, and its end ends the program
        [program, "stdin", "stdout"], input=data, capture_output=True, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"it ended with {done.returncode}"
        raise ValueError(f"tesseract cannot read it: {reason}")
    return done.stdout.decode(errors="replace").replace("\f", "").strip()
