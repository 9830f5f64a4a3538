"""Keys of jobs that a commit makes by itself: at a tick, or at another job's end.

Nobody draws them, so they follow from what makes the job. A reduction that is repeated makes the same job, and whoever
knows what ended, and when, knows which jobs came of it. They have the form of keys that are drawn: see ``model.keys``.
"""

from __future__ import annotations

from hashlib import blake2b


def made_key(now_ms: int, order: int, text: bytes, shard: int) -> bytes:
    """The key of what ``text`` tells, and nothing else does. Of those of a moment, ``order`` is how they sort."""
    chance = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
    high = now_ms << 16 | 7 << 12 | order & 0xFFF
    return (high << 64 | 1 << 63 | (chance & (1 << 54) - 1) << 8 | shard).to_bytes(16, "big")
