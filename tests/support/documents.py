"""Small documents, made by hand."""

import io
import zipfile


def word(body: str, head: str = "") -> bytes:
    """A minimal Word document; `head` precedes its XML."""
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels"'
        ' ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/word/document.xml" ContentType='
        '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>'
        "</Types>"
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" Target="word/document.xml" Type='
        '"http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/>'
        "</Relationships>"
    )
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    with io.BytesIO() as stream:
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("[Content_Types].xml", types)
            archive.writestr("_rels/.rels", relations)
            archive.writestr(
                "word/document.xml",
                f'{head}<w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>',
            )
        return stream.getvalue()


def pdf(*pages: list[tuple[int, str]]) -> bytes:
    """A PDF whose pages have lines of the given sizes, in columns at tabs."""
    fonts = b"/Resources << /Font << /F1 3 0 R >> >>"
    numbers = [4 + 2 * at for at in range(len(pages))]
    kids = b" ".join(b"%d 0 R" % one for one in numbers)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, lines in zip(numbers, pages, strict=True):
        drawing = "\n".join(
            f"BT /F1 {size} Tf {72 + 160 * column} {720 - 40 * at} Td ({cell}) Tj ET"
            for at, (size, text) in enumerate(lines)
            for column, cell in enumerate(text.split("\t"))
        ).encode()
        box = b"/MediaBox [0 0 612 792] /Contents %d 0 R %s" % (number + 1, fonts)
        objects += [
            b"<< /Type /Page /Parent 2 0 R %s >>" % box,
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawing), drawing),
        ]
    written = b"%PDF-1.4\n"
    offsets = []
    for number, item in enumerate(objects, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, item)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(written)
    size = len(objects) + 1
    written += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    return written + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, start)


def picture(text: str) -> bytes:
    """A PNG with a line of black text."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("L", (60 + 24 * len(text), 100), 255)
    ImageDraw.Draw(image).text((30, 20), text, 0, font=ImageFont.load_default(40))
    with io.BytesIO() as stream:
        image.save(stream, "PNG")
        return stream.getvalue()
