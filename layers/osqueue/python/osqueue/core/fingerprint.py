"""Which errors are the same error: a short, stable fingerprint of its type and message.

What differs from one occurrence to the next (numbers, ids, addresses, paths, quoted values) is replaced by its sort,
and what is left is hashed. The rules are part of the format: people write fingerprints into runbooks and scripts.

>>> normalised("user 17 not found in '/srv/a.db'") == normalised("user 4 not found in '/srv/b.db'")
True
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from .state import FAILED, STALLED, PastAttempt

CHARS = 8  # of a fingerprint: 32 bits, for some thousands of different errors in one queue

# In this order: what is more particular comes first.
_RULES = tuple(
    (re.compile(pattern), sort)
    for pattern, sort in (
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
        (r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"`<>)\]]+", "<url>"),
        (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "<email>"),
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
        (r"\"(?:[^\"\\]|\\.)*\"|`[^`]*`|(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)", "<text>"),
        (r"(?<![\w/])(?:[A-Za-z]:)?(?:~|\.{1,2})?(?:[/\\][\w.@%+~-]+)+[/\\]?", "<path>"),
        (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
        (r"\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{7,}\b", "<hex>"),
        (r"\d+(?:[.,:_]\d+)*", "<n>"),
        (r"\s+", " "),
    )
)


def normalised(message: str) -> str:
    """A message without what differs between two occurrences of one error."""
    for pattern, sort in _RULES:
        message = pattern.sub(sort, message)
    return message.strip()


def fingerprint(error_type: str, message: str) -> str:
    """Eight hexadecimal digits: the same for every occurrence of one error."""
    text = f"{error_type}\n{normalised(message)}"
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:CHARS]


def error_of(attempt: PastAttempt) -> tuple[str, str]:
    """The type and message of the error that ended an attempt. All leases that ran out are one error."""
    if attempt.outcome == STALLED:
        return STALLED, attempt.error or "its lease ended without a word from its worker"
    return attempt.error_type, attempt.error


def last_error(attempts: Sequence[PastAttempt]) -> tuple[str, str]:
    """The type and message of the last error among a job's attempts: what it died of."""
    for attempt in reversed(attempts):
        if attempt.outcome in (FAILED, STALLED):
            return error_of(attempt)
    return "", ""
