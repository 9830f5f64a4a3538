"""Text of strangers, names, payloads and errors, as a terminal may be given it.

Whatever a terminal would act upon or not show (controls, escapes, direction marks, broken Unicode) is its escape.
"""

from __future__ import annotations

import json
from typing import Any, TextIO


def safe(text: str) -> str:
    """The text with everything unprintable escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe_json(text: str, ascii_only: bool = False) -> str:
    """A line of JSON with the same things escaped, so that it is safe to look at and still means the same."""
    if text.isprintable() and not (ascii_only and not text.isascii()):
        return text
    return "".join(
        c if c.isprintable() and (c.isascii() or not ascii_only) else json.dumps(c)[1:-1] for c in text
    )


def as_json(value: Any, ascii_only: bool = False) -> str:
    """A value as such a line."""
    import msgspec  # here: the command line's help needs the rest of this module alone

    try:
        text = msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:  # broken Unicode, from an argument that was not UTF-8
        text = json.dumps(msgspec.to_builtins(value, enc_hook=str))
    return safe_json(text, ascii_only)


def of_few_characters(stream: TextIO | None) -> bool:
    """Whether a stream's encoding lacks some of what JSON may hold: then it gets ASCII alone."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return str(encoding).lower().replace("-", "") != "utf8"
