"""Announced requests: what their keys tell, to whom, and what is read where a key does not tell."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Queue, limits
from osqueue.core.encoding import decode_head, encode, encode_segment, frame
from osqueue.core.intents import (
    decode_intent,
    intent_body,
    intent_key,
    intents_prefix,
    parse_intent_key,
    public_identity,
    read_intent,
    request_in_key,
)
from osqueue.core.job_ops import (
    AbortJobs,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    JobSpec,
    LeaseBeat,
    LeaseRef,
)
from osqueue.core.ops import Request, token_of
from osqueue.core.queue_ops import RunTimers
from osqueue.core.state import State
from osqueue.errors import Damaged, NewerFormat
from osqueue.objects.layout import root_of
from osqueue.stores.base import FILE_NAME_BYTES_MAX, Get, List, Put
from osqueue.stores.memory import MemoryStore

SEAL, OLDER, OTHER = b"a" * 16, b"b" * 16, b"c" * 16
ROOM = 900
GOOD = "000000000001.e.1.000000000000000b.7.1."
ROOT = root_of("mail", 0)
WROTE = [
    EnqueueJobs((JobSpec(bytes(16), b"secret"),)),
    CompleteJobs((Completion(bytes(16), "secret", b"secret"),)),
    FailJobs((FailedAttempt(bytes(16), "secret", "secret"),)),
    AbortJobs((LeaseRef(bytes(16), "secret"),), "secret"),
    ClaimJobs(1, "secret", 30_000),
]


def text_of(key: str) -> bytes:
    """The sealed bytes of a key."""
    sealed = key.rpartition(".")[2]
    return base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))


def told(key: str, *seals: bytes) -> Request | None:
    name = parse_intent_key(key)
    assert name is not None
    return request_in_key(name, seals)


# ── Sealed in the key ────────────────────────────────────────────────────────
@pytest.mark.parametrize("op", WROTE, ids=lambda op: type(op).__name__)
def test_who_holds_the_head_reads_the_operations_from_the_key(shard: Any, op: Any) -> None:
    request = shard.request(op)
    key = intent_key(request, ROOM, (OLDER, SEAL))
    assert told(key, SEAL) == request
    assert told(key, SEAL, OTHER) == request  # another secret has been drawn since
    assert told(key, OLDER) is told(key, OTHER) is told(key) is None


@pytest.mark.parametrize("op", WROTE, ids=lambda op: type(op).__name__)
def test_what_a_caller_wrote_never_stands_in_a_key(shard: Any, op: Any) -> None:
    key = intent_key(shard.request(op), ROOM, (SEAL,))
    assert "secret" not in key
    assert b"secret" not in text_of(key)
    assert b"secret" in intent_body(shard.request(op))


def test_a_key_does_not_show_of_what_lease_tokens_are_made(shard: Any) -> None:
    """Whoever has a job's id and its lease's token may finish the job."""
    request = shard.request(ClaimJobs(1, "ada", 30_000))
    for seals in ((SEAL,), ()):
        key = intent_key(request, ROOM, seals)
        assert f"{request.nonce:x}" not in key
        assert token_of(request.nonce, 0).partition("-")[0] not in key
        name = parse_intent_key(key)
        assert name is not None
        assert name.request == public_identity(request)
        assert read_intent(name, intent_body(request)) == request


def test_no_two_requests_are_sealed_alike(shard: Any) -> None:
    """Else the difference of two keys would tell the difference of their operations."""
    op = EnqueueJobs((JobSpec(bytes(16), bytes(100)),))
    texts = [text_of(intent_key(shard.request(op), ROOM, (SEAL,))) for _ in range(50)]
    texts += [text_of(intent_key(shard.request(op, env="v"), ROOM, (OTHER,)))]
    for position in range(len(texts[0])):
        assert len({text[position] for text in texts}) > 20


def test_a_key_that_was_tampered_with_tells_nothing(shard: Any) -> None:
    request = shard.request(ClaimJobs(3, "ada", 30_000))
    key = intent_key(request, ROOM, (SEAL,))
    stem, _, sealed = key.rpartition(".")
    born, env, n, mark, epoch, form = stem.split(".")
    assert told(f"{stem}.{sealed[:-3]}", SEAL) is None
    assert told(f"{stem}.A{sealed}", SEAL) is None
    assert told(f"{stem}.{'B' if sealed[0] == 'A' else 'A'}{sealed[1:]}", SEAL) is None
    moved = [
        (born, env, n, mark, f"{int(epoch, 16) + 1:x}", form),
        (born, "x" + env[1:], n, mark, epoch, form),
        (born, env, f"{int(n, 16) + 1:x}", mark, epoch, form),
        (born, env, n, f"{int(mark, 16) ^ 1:016x}", epoch, form),
        (f"{int(born, 16) + 1:012x}", env, n, mark, epoch, form),
    ]
    for fields in moved:  # one request's operations under another's name
        assert told(".".join((*fields, sealed)), SEAL) is None


def test_without_a_secret_and_without_room_the_key_holds_no_operations(shard: Any) -> None:
    short = shard.request(ExtendLeases((LeaseBeat(bytes(16), "t" * 18),)))
    long = shard.request(ExtendLeases(tuple(LeaseBeat(bytes(16), "t" * 18) for _ in range(100))))
    for key in (intent_key(short, ROOM, ()), intent_key(long, ROOM, (SEAL,))):
        assert key.endswith(".")
        assert told(key, SEAL) is None
    assert told(intent_key(short, ROOM, (SEAL,)), SEAL) == short


@pytest.mark.parametrize("missing", [0, 1])
def test_a_key_is_used_to_its_last_byte(shard: Any, missing: int) -> None:
    request = shard.request(ClaimJobs(5, "ada", 30_000))
    full = len(intent_key(request, ROOM, (SEAL,)))
    key = intent_key(request, full - missing, (SEAL,))
    assert len(key) <= full - missing
    assert (told(key, SEAL) is None) == bool(missing)


def test_a_small_job_fits_into_a_name_of_a_file() -> None:
    """A file system takes 255 bytes; writers that share a folder should not have to read objects either."""
    request = Request("e" * 16, 1_000_000, 2**64 - 1, 2**40, 2**64 - 1, (WROTE[0],))
    assert told(intent_key(request, FILE_NAME_BYTES_MAX, (SEAL,)), SEAL) == request


def test_a_request_has_one_key_however_often_it_is_sent(shard: Any) -> None:
    request = shard.request(ClaimJobs(3, "ada", 30_000))
    again = shard.request(ClaimJobs(3, "ada", 30_000))
    assert intent_key(request, ROOM, (SEAL,)) == intent_key(request, ROOM, (SEAL,))
    assert intent_key(again, ROOM, (SEAL,)) != intent_key(request, ROOM, (SEAL,))


def test_announcements_sort_by_birth(shard: Any) -> None:
    names = []
    for _ in range(20):
        request = shard.request(RunTimers(), env=f"{shard.chance.getrandbits(64):016x}")
        names.append(intent_key(request, ROOM, (SEAL,)))
        shard.enqueue()
    assert names == sorted(names)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "README",
        "1.2.3",
        GOOD.replace(".7.1.", ".7.2."),  # a newer format
        GOOD.removesuffix("."),
        GOOD + "k.k",
        GOOD + "k k",
        GOOD + "é",
        "elsewhere/" + GOOD,
        GOOD.replace(".1.", ".one.", 1),
        GOOD.replace(".1.", ".-1.", 1),
        GOOD.replace(".1.", ".0x1.", 1),
        GOOD.replace(".1.", ". 1.", 1),
        GOOD.replace(".1.", ".1_0.", 1),
        GOOD.replace(".1.", ".\u0661.", 1),  # a digit, to Python
        GOOD.replace(".1.", ".01.", 1),  # the same request under another key
        GOOD.replace(".1.", f".{2**64:x}.", 1),  # more than a head can hold
        GOOD.replace(".e.", ".\udcff."),  # a file's name that is no text
        GOOD.replace(".e.", ".."),
    ],
)
def test_a_key_that_is_none_of_ours_is_skipped(key: str) -> None:
    assert parse_intent_key(GOOD) is not None
    assert parse_intent_key(key) is None


@pytest.mark.parametrize("sealed", ["!!", "A", "AAAA", "éé", "A" * 900])
def test_sealed_nonsense_is_no_operation(sealed: str) -> None:
    name = parse_intent_key(GOOD + sealed)
    assert name is None or request_in_key(name, (SEAL, OTHER)) is None


def test_whoever_knows_what_a_key_says_cannot_make_it_say_something_else(shard: Any) -> None:
    one, other = (encode((EnqueueJobs((JobSpec(bytes(16), payload),)),)) for payload in (b'"key"', b'"bad"'))
    stem, _, sealed = intent_key(
        shard.request(EnqueueJobs((JobSpec(bytes(16), b'"key"'),))), ROOM, (SEAL,)
    ).rpartition(".")
    text = text_of(f"{stem}.{sealed}")
    tag = len(text) - len(one)
    forged = text[:tag] + bytes(a ^ b ^ c for a, b, c in zip(text[tag:], one, other, strict=True))
    assert told(f"{stem}.{base64.urlsafe_b64encode(forged).decode().rstrip('=')}", SEAL) is None


def test_a_copy_of_a_writer_that_draws_the_same_numbers_gives_nothing_away(shard: Any) -> None:
    request = shard.request(EnqueueJobs((JobSpec(bytes(16), bytes(40)),)))
    copy = replace(request, ops=(EnqueueJobs((JobSpec(bytes(16), bytes(39) + b"1"),)),))
    one, other = (text_of(intent_key(each, ROOM, (SEAL,))) for each in (request, copy))
    assert sum(a == b for a, b in zip(one, other, strict=True)) < 10


# ── The object ───────────────────────────────────────────────────────────────
def test_the_object_holds_the_whole_request(shard: Any) -> None:
    request = shard.request(EnqueueJobs((shard.new(b"payload"),)))
    name = parse_intent_key(intent_key(request, ROOM, ()))
    assert name is not None
    assert read_intent(name, intent_body(request)) == request
    assert read_intent(name, intent_body(shard.request(*request.ops))) is None  # another's, under this name


def test_a_turned_bit_anywhere_in_an_object_is_noticed(shard: Any) -> None:
    data = intent_body(shard.request(EnqueueJobs((shard.new(b"payload"),))))
    for at in range(len(data)):
        broken = data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :]
        with pytest.raises((Damaged, NewerFormat)):
            decode_intent(broken, "intents/x")


def test_an_object_nested_without_end_is_damaged() -> None:
    nested = b"\x91" * 200_000
    with pytest.raises(Damaged):
        decode_intent(frame(b"OSQI", b"\x97\xa1e\x01\x07\x01\x07\x90" + nested), "intents/x")


def test_other_objects_and_newer_formats_are_told_apart(shard: Any) -> None:
    shard.enqueue()
    segment, _ = encode_segment(shard.state.lanes[0].backlog.ready, "segments/x")
    with pytest.raises(Damaged):
        decode_intent(segment, "intents/x")
    data = intent_body(shard.request(RunTimers()))
    with pytest.raises(NewerFormat):
        decode_intent(data[:4] + (2).to_bytes(2, "big") + data[6:], "intents/x")


# ── The head's secrets ───────────────────────────────────────────────────────
def test_the_head_draws_a_secret_with_its_first_commit_and_about_once_an_hour(shard: Any) -> None:
    seen: list[bytes] = []
    for at in range(60):
        shard.enqueue()
        newest = shard.state.seals[-1]
        if newest not in seen:
            assert newest == shard.state.commit
            seen.append(newest)
        assert shard.state.seals == tuple(seen[-2:])
        assert len(seen) == 1 + at // 6
        shard.now += limits.HOUR_MS // 6


# ── In use ───────────────────────────────────────────────────────────────────
@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def mail(machine: Any, store: MemoryStore) -> Callable[[], Queue[Any]]:
    return lambda: Queue(store, "mail", machine=machine)


def plant(store: MemoryStore, request: Request, *seals: bytes) -> None:
    """Announce a request, as a writer would who died after it."""
    key = intents_prefix(ROOT) + intent_key(request, ROOM, seals)
    store.perform(Put(key, intent_body(request)))


def head_of(store: MemoryStore) -> State:
    return decode_head(store.perform(Get(ROOT + "head")).body)  # type: ignore[union-attr]


def job_of(store: MemoryStore, env: str, payload: bytes) -> Request:
    head = head_of(store)
    key = head.now_ms.to_bytes(6, "big") + payload.ljust(9, b"-") + b"\0"
    return Request(env, 1, 7, head.seq, head.epoch, (EnqueueJobs((JobSpec(key, payload, "json"),)),))


def test_sealed_announcements_are_taken_along_without_reading_their_objects(
    mail: Callable[[], Queue[Any]], store: MemoryStore
) -> None:
    q = mail()
    q.enqueue("first")
    head = head_of(store)
    for at in range(5):
        plant(store, job_of(store, f"{at:016x}", b"%d" % at), head.seals[-1])
    before = q.requests["get"]
    q.reap()
    reading = q.requests["get"] - before
    for at in range(5, 10):
        plant(store, job_of(store, f"{at:016x}", b"%d" % at))
    before = q.requests["get"]
    q.reap()
    assert q.requests["get"] - before >= reading + 5
    assert sorted(map(str, (lease.payload for lease in q.claim(20)))) == sorted(["first", *"0123456789"])
    q.reap()
    assert store.perform(List(intents_prefix(ROOT))).keys == ()  # type: ignore[union-attr]


def test_an_announcement_whose_secret_is_forgotten_is_read_from_its_object(
    mail: Callable[[], Queue[Any]], store: MemoryStore
) -> None:
    q = mail()
    q.enqueue("first")
    plant(store, job_of(store, "e" * 16, b"2"), OTHER)
    q.reap()
    assert [lease.payload for lease in q.claim(9)] == ["first", 2]


def test_announcements_that_nobody_can_read_keep_no_other_one_out(
    mail: Callable[[], Queue[Any]], store: MemoryStore
) -> None:
    q = mail()
    q.enqueue("first")
    head = head_of(store)
    for at in range(limits.INTENTS_PER_COMMIT_MAX):
        name = intent_key(job_of(store, f"{at:016x}", b"0"), ROOM, ())
        store.perform(Put(intents_prefix(ROOT) + name, b"written by a later release"))
    plant(store, job_of(store, "f" * 16, b"2"), head.seals[-1])
    q.reap()
    assert [lease.payload for lease in q.claim(9)] == ["first", 2]
