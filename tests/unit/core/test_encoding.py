"""Bytes in the store: damage is noticed, newer formats are left alone, and neither is ever taken for state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.core import encoding
from osqueue.core.encoding import (
    Footer,
    HeadEncoder,
    decode_blocks,
    decode_footer,
    decode_head,
    decode_index,
    encode_head,
    encode_index,
    encode_segment,
    is_removal_mark,
    removal_mark,
    unframe,
)
from osqueue.core.job_ops import CancelJob, CompleteJobs, Completion, FailedAttempt, FailJobs
from osqueue.core.rows import BodyRef
from osqueue.core.state import JobRecord, State
from osqueue.errors import Conflict, Damaged, NewerFormat

NAME = "segments/000000000001-00000000000000aa-0"


@pytest.fixture
def head(shard: Any) -> bytes:
    """A head with something of everything in it."""
    shard.enqueue(3, kind="a")
    shard.enqueue(2, delay_ms=1_000)
    first, second, _third = shard.claim(3)
    shard.apply(FailJobs((FailedAttempt(first.job.key, first.token, "no", final=True),)))
    shard.apply(CancelJob(second.job.key))
    shard.apply(CancelJob(shard.enqueue()[0]))
    return encode_head(shard.state)


def jobs(count: int, size: int = 10) -> list[JobRecord]:
    return [
        JobRecord(at.to_bytes(16, "big"), bytes(size), 1, kind=f"k{at % 3}") for at in range(1, count + 1)
    ]


def read_segment(data: bytes, first: int) -> list[JobRecord]:
    found = [job for _, block in decode_blocks(data, first, NAME) for job in block.jobs]
    footer = decode_footer(data, NAME)
    assert isinstance(footer, Footer)
    assert sum(info.count for info in footer.blocks) == len(found)
    return found


def flips(data: bytes) -> list[bytes]:
    """The data with one bit of each byte turned."""
    step = max(1, len(data) // 700)
    return [
        data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :] for at in range(0, len(data), step)
    ]


# ── Damage ───────────────────────────────────────────────────────────────────
def test_a_turned_bit_anywhere_in_the_head_is_noticed(head: bytes) -> None:
    for broken in flips(head):
        with pytest.raises((Damaged, NewerFormat)):
            decode_head(broken)


def test_a_head_cut_short_anywhere_is_noticed(head: bytes) -> None:
    for length in range(0, len(head), 7):
        with pytest.raises(Damaged):
            decode_head(head[:length])


def test_something_appended_to_a_head_is_noticed(head: bytes) -> None:
    with pytest.raises(Damaged):
        decode_head(head + b"x")


def test_a_turned_bit_anywhere_in_a_block_is_noticed() -> None:
    data, span = encode_segment(jobs(5), NAME)
    for broken in flips(data[: span.length]):
        with pytest.raises((Damaged, NewerFormat)):
            list(decode_blocks(broken, span.length, NAME))


def test_a_turned_bit_anywhere_in_a_footer_is_noticed() -> None:
    data, _ = encode_segment(jobs(200, 1_000), NAME)
    footer = decode_footer(data, NAME)
    length = int.from_bytes(data[-4:], "big") + 4
    for broken in flips(data[-length:]):
        try:
            found = decode_footer(broken, NAME)
        except (Damaged, NewerFormat):
            continue
        assert found != footer
        assert isinstance(found, int)  # asks for more bytes, which the reader knows there are not


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 10])
def test_a_footer_cut_short_is_noticed(length: int) -> None:
    data, _ = encode_segment(jobs(5), NAME)
    try:
        found = decode_footer(data[len(data) - length :][-length:] if length else b"", NAME)
    except Damaged:
        return
    assert isinstance(found, int)


def test_a_turned_bit_anywhere_in_an_index_is_noticed() -> None:
    spans = [encode_segment(jobs(3), f"{NAME}{at}")[1] for at in range(4)]
    data, _ = encode_index(spans, NAME)
    for broken in flips(data):
        with pytest.raises((Damaged, NewerFormat)):
            decode_index(broken, NAME)


def test_one_kind_of_object_is_not_taken_for_another(head: bytes) -> None:
    segment, _span = encode_segment(jobs(3), NAME)
    with pytest.raises(Damaged):
        decode_index(segment, NAME)
    with pytest.raises(Damaged):
        decode_head(bytes(16) + segment)
    with pytest.raises(Damaged):
        list(decode_blocks(head[16:], len(head) - 16, NAME))


def test_a_head_whose_commit_was_exchanged_is_noticed(head: bytes, new_shard: Callable[..., Any]) -> None:
    with pytest.raises(Damaged, match="commit id"):
        decode_head(b"z" * 16 + head[16:])


# ── Newer formats ────────────────────────────────────────────────────────────
def newer(data: bytes, at: int) -> bytes:
    """The data with the format of its frame raised."""
    return data[: at + 4] + (2).to_bytes(2, "big") + data[at + 6 :]


def test_a_newer_format_is_told_from_damage(head: bytes, shard: Any) -> None:
    segment, span = encode_segment(jobs(3), NAME)
    index, _ = encode_index([span], NAME)
    with pytest.raises(NewerFormat, match="Upgrade osqueue"):
        decode_head(newer(head, 16))
    with pytest.raises(NewerFormat):
        list(decode_blocks(newer(segment, 0), span.length, NAME))
    with pytest.raises(NewerFormat):
        decode_index(newer(index, 0), NAME)


def test_a_head_keeps_the_format_that_it_was_raised_to(shard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that reads it and uses nothing new would otherwise hand it to one that erases what it does not know."""
    monkeypatch.setattr(encoding, "FORMATS_READ", (1, 2))
    shard.enqueue(1)
    assert encode_head(shard.state)[20:22] == b"\0\1"
    shard.state = decode_head(encode_head(replace(shard.state, format=2)))
    shard.enqueue(1)
    for written in (encode_head(shard.state), HeadEncoder().encode(shard.state)):
        assert written[20:22] == b"\0\2"
        monkeypatch.setattr(encoding, "FORMATS_READ", (1,))
        with pytest.raises(NewerFormat, match="the head has format 2; this release reads 1"):
            decode_head(written)


# ── Round trips ──────────────────────────────────────────────────────────────
def test_a_head_survives_the_round_trip(head: bytes, shard: Any) -> None:
    assert decode_head(head) == shard.state
    assert encode_head(decode_head(head)) == head


def test_heads_that_follow_one_another_are_encoded_as_each_alone(shard: Any) -> None:
    encoder = HeadEncoder()
    tables = finished = 0
    for turn in range(40):
        shard.enqueue(1 + turn % 20)
        assert encoder.encode(shard.state) == encode_head(shard.state)
        items = tuple(Completion(lease.job.key, lease.token, bytes(turn)) for lease in shard.claim(20))
        shard.apply(CompleteJobs(items))
        head = encode_head(shard.state)
        assert encoder.encode(shard.state) == head
        if turn % 7 == 0:  # somebody else's commit, read back: equal rows, other objects
            assert encoder.encode(decode_head(head)) == head
        tables, finished = len(shard.state.tables), max(finished, len(shard.state.finished))
    assert tables > 3
    assert finished > 16  # the lengths of arrays that take one byte, and three


def test_two_heads_of_the_same_content_are_different_bytes(shard: Any) -> None:
    shard.enqueue()
    first = shard.head_bytes
    one = encode_head(shard.state)
    shard.claim(1)
    assert encode_head(shard.state)[:16] != one[:16]
    assert first


@pytest.mark.parametrize(("count", "size"), [(1, 0), (1, 100_000), (50, 1_000), (2_000, 10), (40, 32_700)])
def test_a_segment_survives_the_round_trip(count: int, size: int) -> None:
    wanted = jobs(count, size)
    data, span = encode_segment(wanted, NAME)
    assert read_segment(data, span.length) == wanted
    assert (span.count, span.size) == (count, len(data))
    footer = decode_footer(data, NAME)
    assert isinstance(footer, Footer)
    for info in footer.blocks:
        assert info.length <= limits.BLOCK_BYTES_MAX or info.count == 1


def test_a_footer_names_the_bodies_its_jobs_need() -> None:
    several = [JobRecord(bytes([at] * 16), BodyRef(f"bodies/{at % 2}", 0, 1, 0), 1) for at in range(1, 5)]
    data, span = encode_segment(several, NAME)
    footer = decode_footer(data, NAME)
    assert isinstance(footer, Footer)
    assert (footer.bodies, span.bodies) == (("bodies/0", "bodies/1"), True)


# ── In the place of a head ───────────────────────────────────────────────────
def test_a_mark_of_a_removal_is_no_head_and_no_damage() -> None:
    mark = removal_mark(b"c" * 16)
    assert is_removal_mark(mark)
    assert removal_mark(b"d" * 16) != mark
    with pytest.raises(Conflict, match="being removed"):
        decode_head(mark)


def test_what_does_not_know_the_mark_takes_it_for_a_newer_format() -> None:
    with pytest.raises(NewerFormat, match="format 65535"):
        unframe(b"OSQH", removal_mark(b"c" * 16)[16:], "the head")


def test_no_head_is_taken_for_the_mark() -> None:
    head = encode_head(State(commit=b"c" * 16, epoch=1))
    assert not is_removal_mark(head)
    assert not is_removal_mark(head[: len(removal_mark(b"c" * 16))])
    assert not is_removal_mark(b"")
