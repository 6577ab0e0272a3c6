"""Pages of a PDF file: through PDFium, or through pypdf where PDFium cannot open the file."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any, Protocol

from infinipot_cli.errors import InputError

MAX_PAGE_CHARS = 1_000_000
_PASSWORD_ERROR = 4
_SECURITY_ERROR = 5
_PDFIUM = threading.RLock()
"""PDFium is not thread-safe: every call into it holds this lock."""


class Pages(Protocol):
    """An open PDF file. Indices count from 0."""

    def __len__(self) -> int: ...

    def text(self, index: int) -> str: ...

    def has_image(self, index: int) -> bool: ...

    def close(self) -> None: ...


class PageDamaged(Exception):
    """One page of an otherwise sound file cannot be read."""


def open_pages(path: Path, password: str | None) -> tuple[Pages, list[str]]:
    """Open a PDF file; also gives warnings about it. Raises InputError when it is damaged or locked."""
    import pypdfium2

    try:
        with _PDFIUM:
            return PdfiumPages(pypdfium2.PdfDocument(path, password=password)), []
    except pypdfium2.PdfiumError as error:
        if error.err_code == _PASSWORD_ERROR:
            raise _locked(password) from error
        if error.err_code == _SECURITY_ERROR:
            raise InputError("is encrypted in a way that is not supported") from error
        return PypdfPages(path, password), ["damaged; what could be repaired was read"]


def _locked(password: str | None) -> InputError:
    if password is None:
        return InputError("is encrypted and needs a password", hint="give it with --password")
    return InputError("is encrypted, and the password given is wrong")


def _check_size(index: int, size: int) -> None:
    if size > MAX_PAGE_CHARS:
        raise InputError(f"page {index + 1} holds {size:,} characters, more than {MAX_PAGE_CHARS:,}")


class PdfiumPages:
    """Pages through PDFium: fast, with ligatures expanded and hyphens at line ends marked."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def __len__(self) -> int:
        with _PDFIUM:
            return len(self._document)

    def text(self, index: int) -> str:
        """A page's text with CRLF line ends and U+FFFE for a hyphen at a line end.

        Raises PageDamaged, or InputError for a page of more than MAX_PAGE_CHARS characters.
        """
        import pypdfium2

        with _PDFIUM:
            try:
                page = self._document[index]
            except pypdfium2.PdfiumError as error:
                raise PageDamaged(str(error)) from error
            try:
                text_page = page.get_textpage()
                try:
                    _check_size(index, text_page.count_chars())
                    return str(text_page.get_text_range())
                finally:
                    text_page.close()
            except pypdfium2.PdfiumError as error:
                raise PageDamaged(str(error)) from error
            finally:
                page.close()

    def has_image(self, index: int) -> bool:
        """Whether there is a picture on a page."""
        import pypdfium2.raw

        with _PDFIUM:
            page = self._document[index]
            try:
                return any(True for _ in page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE]))
            finally:
                page.close()

    def close(self) -> None:
        """Close the file."""
        with _PDFIUM:
            self._document.close()


class PypdfPages:
    """Pages through pypdf, which repairs some files that PDFium refuses. Slow."""

    def __init__(self, path: Path, password: str | None) -> None:
        import pypdf

        logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # one warning a file is ours to give
        try:
            self._reader = pypdf.PdfReader(path, strict=False)
            unlocked = not self._reader.is_encrypted or self._reader.decrypt(password or "")
            pages = len(self._reader.pages) if unlocked else 0
        except Exception as error:  # on hostile files pypdf fails in any way at all
            raise InputError("is damaged: no PDF reader can open it", hint="fetch or make the file again") from error
        if not unlocked:
            raise _locked(password)
        if not pages:
            raise InputError("is damaged: no pages can be found in it", hint="fetch or make the file again")

    def __len__(self) -> int:
        return len(self._reader.pages)

    def text(self, index: int) -> str:
        """A page's text with LF line ends. Raises as PdfiumPages.text does."""
        try:
            text = str(self._reader.pages[index].extract_text())
        except Exception as error:  # as above
            raise PageDamaged(str(error)) from error
        _check_size(index, len(text))
        return text

    def has_image(self, index: int) -> bool:
        """Whether there is a picture on a page."""
        try:
            return bool(self._reader.pages[index].images.keys())
        except Exception:  # as above; it is only for a remark
            return False

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
