"""Checks the archive of an office file before a parser unpacks it."""

import io
import zipfile

MAX_TOTAL_BYTES = 500_000_000
MAX_ENTRY_BYTES = 200_000_000
MAX_ENTRIES = 10_000
_PIECE = 1_000_000
_DECLARATIONS = tuple(
    mark.encode(encoding)
    for mark in ("<!DOCTYPE", "<!ENTITY")
    for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)


def check_declared_size(data: bytes) -> None:
    """Raise ValueError if an archive is damaged, or says itself that it is too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ValueError(f"is damaged: {error}") from error
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"has {len(entries):,} parts; at most {MAX_ENTRIES:,} are read")
    _check_total(sum(entry.file_size for entry in entries))
    _check_entry(max((entry.file_size for entry in entries), default=0))


def check_contents(data: bytes) -> None:
    """Unpack an archive piece by piece and raise ValueError if it is damaged or a bomb.

    Sizes are counted as they are unpacked. XML with a document type, which office files never
    have, is refused: it may define entities that grow without end or name other files.
    """
    total = 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                total += _check_part(archive, entry)
                _check_total(total)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise ValueError(f"is damaged: {error}") from error
    except RuntimeError as error:  # an encrypted entry
        raise ValueError(f"cannot be unpacked: {error}") from error


def _check_part(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    """Return the unpacked size of an entry."""
    size, end_of_last = 0, b""
    with archive.open(entry) as part:
        while piece := part.read(_PIECE):
            size += len(piece)
            _check_entry(size)
            seen = end_of_last + piece
            if any(mark in seen for mark in _DECLARATIONS) and _is_xml(entry.filename):
                raise ValueError(
                    f"its part {entry.filename!r} declares a document type, which office files"
                    " never do; it is not read"
                )
            end_of_last = piece[-20:]
    return size


def _is_xml(name: str) -> bool:
    return name.lower().endswith((".xml", ".rels", ".vml"))


def _check_total(size: int) -> None:
    if size > MAX_TOTAL_BYTES:
        raise ValueError(
            f"unpacks to {size / 1e6:,.0f} MB; at most {MAX_TOTAL_BYTES / 1e6:,.0f} are read"
        )


def _check_entry(size: int) -> None:
    if size > MAX_ENTRY_BYTES:
        most = f"{MAX_ENTRY_BYTES / 1e6:,.0f}"
        raise ValueError(
            f"one of its parts unpacks to more than {most} MB; at most {most} are read"
        )
