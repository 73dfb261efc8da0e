"""PDF files that tests write object by object."""

from collections.abc import Sequence


def pdf_of(objects: Sequence[str | bytes], trailer: str = "") -> bytes:
    """Return a PDF of these objects, numbered from 1. The first is the catalog."""
    content, places = b"%PDF-1.7\n", list[int]()
    for number, body in enumerate(objects, 1):
        places.append(len(content))
        data = body.encode("latin-1") if isinstance(body, str) else body
        content += b"%d 0 obj\n%b\nendobj\n" % (number, data)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(objects) + 1
    return content + (
        b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R %b >>\n"
        b"startxref\n%d\n%%%%EOF\n" % (count, table, count, trailer.encode(), len(content))
    )


def page_of(
    annotations: Sequence[str] = (), text: str = "", fields: str = "", font: str = ""
) -> bytes:
    """Return a PDF with one page: annotations from object 6 on; `fields` of the form, `[6 0 R]`."""
    drawn = f"BT /F1 12 Tf 20 150 Td ({text}) Tj ET"
    form = f"/AcroForm << /Fields {fields} /DA (/F1 12 Tf) >>" if fields else ""
    numbers = " ".join(f"{number} 0 R" for number in range(6, 6 + len(annotations)))
    return pdf_of([
        f"<< /Type /Catalog /Pages 2 0 R {form} >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R"
        f" /Resources << /Font << /F1 5 0 R >> >> /Annots [{numbers}] >>",
        f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        f"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica {font} >>",
        *annotations,
    ])  # fmt: skip


def scans(count: int, shared: bytes) -> bytes:
    """Return a PDF of scanned pages, which all show this JPEG of 850 x 1100 pixels."""
    drawn = "612 0 0 792 0 0 cm /I Do"
    pages = [
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 3 0 R"
        " /Resources << /XObject << /I 4 0 R >> >> >>"
        for _ in range(count)
    ]
    kids = " ".join(f"{number} 0 R" for number in range(5, 5 + count))
    image = (
        b"<< /Type /XObject /Subtype /Image /Width 850 /Height 1100 /ColorSpace /DeviceGray "
        b"/BitsPerComponent 8 /Filter /DCTDecode /Length %d >>\nstream\n%b\nendstream"
    )
    return pdf_of([
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        image % (len(shared), shared),
        *pages,
    ])  # fmt: skip
