"""A Valkey or Redis server: each request is one round trip, each conditional write one script.

An object is a string: its version, the server's time and then the body, so that a range is read without the rest. A
sorted set holds all keys in the order of their bytes. The names, for the prefix ``osqueue``::

    osqueue:o/<key>    the object
    osqueue:keys       the keys
    osqueue:new/<key>  the channel on which those who wait hear of a hot object's versions

A version is drawn by the writer and never comes back: a count kept by the server would, after a failover or a crash
that lost its last writes, and then a stale write could pass for one that knew the newest.

What is answered is kept as the server's ``appendfsync`` says, and sent to replicas later; with ``replicas`` an answer
waits until so many have it. ``remarks`` says what the server is set to.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from functools import partial
from hashlib import sha1
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .. import forks
from ..clock import MACHINE, IdleTime, Machine
from ..errors import NotInstalled, OsqueueError, Rejected
from ..limits import HTTP_IDLE_MS_MAX
from ..threads import DaemonThreads
from .base import (
    LIST_KEYS_MAX,
    Answered,
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    Hinted,
    List,
    Listed,
    LookPace,
    Missing,
    Passed,
    PassTurn,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Remark,
    Store,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Told,
    Turn,
    Unchanged,
    Written,
)
from .valkey_faults import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, WAIT_TIMEOUT_MS, explained, too_few
from .valkey_news import NewsListener
from .valkey_place import ValkeyPlace
from .valkey_remarks import remarks_on
from .valkey_turns import SCRIPTS, THREADS_MAX, ServerTurns

if TYPE_CHECKING:
    from concurrent.futures import Future

    import valkey

Answers = list[Any]  # of the server, in the order of the commands

VERSION_CHARS = 32
HEADER_BYTES = VERSION_CHARS + 13  # the version, and ms since the epoch in digits, before the body
BODY_BYTES_MAX = 512 * 1024 * 1024 - HEADER_BYTES  # the longest string of a server with usual settings
KEYS_PER_SCRIPT = 500  # others wait while a script runs

# After these errors connect again: the name may lead to another server, and the environment may have a password.
_ENDS_CONNECTIONS = frozenset({"ReadOnlyError", "AuthenticationError"})
_ANY, _ABSENT = "any", "absent"  # conditions that are no version


class _Script:
    """A script and the name by which the server knows it once it has run."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()


# Version and time; Unchanged is the number 1.
_READ = _Script("""
local header = redis.call('GETRANGE', KEYS[1], 0, 44)
if header == '' then return false end
if string.sub(header, 1, 32) == ARGV[1] then return 1 end
return header .. redis.call('GETRANGE', KEYS[1], ARGV[2], ARGV[3])
""")
_WRITE = _Script("""
local held = redis.call('GETRANGE', KEYS[2], 0, 31)
if ARGV[1] == 'absent' then
  if held ~= '' then return 0 end
elseif ARGV[1] ~= 'any' and ARGV[1] ~= held then
  return 0
end
if #KEYS > 2 and redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
local now = redis.call('TIME')
local header = ARGV[2] .. now[1] .. string.format('%03d', math.floor(now[2] / 1000))
redis.call('SET', KEYS[2], header .. ARGV[4])
if held == '' then redis.call('ZADD', KEYS[1], 0, ARGV[3]) end
if ARGV[5] ~= '' then redis.pcall('PUBLISH', ARGV[5], ARGV[2]) end
return 1
""")
_DELETE = _Script("""
for at = 2, #KEYS do
  redis.call('UNLINK', KEYS[at])
  redis.call('ZREM', KEYS[1], ARGV[at - 1])
end
return 1
""")
_DELETE_IF_MATCH = _Script("""
if redis.call('GETRANGE', KEYS[2], 0, 31) ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[2])
redis.call('ZREM', KEYS[1], ARGV[2])
return 1
""")
_TURN_SCRIPTS = {text: _Script(text) for text in SCRIPTS}


class ValkeyStore(Store):
    """Objects in a server's memory and its append-only file, below a prefix."""

    turns = True
    look_pace = LookPace(0.01, 0.1, free=True)  # a look costs the server some 20 us, and no money
    clock_tick_ms = 1

    def __init__(self, place: ValkeyPlace, machine: Machine = MACHINE) -> None:
        if find_spec("valkey") is None:
            raise NotInstalled(
                "valkey:// and redis:// need the package valkey, which this Python does not have. Remedy: "
                "pip install 'osqueue[valkey]'",
                field="address",
            )
        self.at = place
        self.flushes = place.replicas > 0  # a write may be seen before the replicas have it
        self._machine = machine
        self._server = f"{place.host}:{place.port}"
        self._index = f"{place.prefix}:keys"
        self._pool: valkey.ConnectionPool | None = None
        self._idle = IdleTime(machine)
        self.reply_s_max = CONNECT_TIMEOUT_S + REQUEST_TIMEOUT_S
        self._news: tuple[int, NewsListener] | None = None  # of which process
        self._lock = forks.lock()
        self._turns = ServerTurns(place.prefix, machine, self._script, self._first_of)
        # For coroutines that wait for a turn. The loop's own threads may be what the holder of the turn waits for.
        self._threads = DaemonThreads("osqueue-turns", THREADS_MAX, awaited=True)

    @property
    def place(self) -> object:
        return ("valkey", self.at.host, self.at.port, self.at.database, self.at.prefix)

    # ── The port ─────────────────────────────────────────────────────────────

    def get(self, request: Get) -> Found | Missing | Unchanged:
        name = self._name(request.key)
        if request.unless is None and request.start is None and request.length is None:
            command: Sequence[Any] = ("GET", name)
        else:
            first = HEADER_BYTES + (request.start or 0)
            last = -1 if request.length is None else first + request.length - 1
            command = _call(_READ, (name,), (request.unless or "", first, last))
        if request.flushed and self.flushes:
            # What another wrote is at the replicas once something is that was written after it was read.
            value, _ = self._ask(command, ("SET", f"{self.at.prefix}:flush", "1"), wait=True)
        else:
            (value,) = self._ask(command)
        if value is None:
            return Missing()
        if value == 1:
            return Unchanged()
        version = value[:VERSION_CHARS].decode("ascii")
        return Found(value[HEADER_BYTES:], version, int(value[VERSION_CHARS:HEADER_BYTES]))

    def put(self, request: Put) -> Written:
        version = self._write(request.key, request.body, _ANY)
        assert version is not None, "a write without a condition is not refused"
        return Written(version)

    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        version = self._write(request.key, request.body, _ABSENT)
        return Refused() if version is None else Written(version)

    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        if (
            len(request.version) != VERSION_CHARS
        ):  # no version of ours, nor a word that stands for a condition
            return Refused()
        version = self._write(request.key, request.body, request.version, request.hot, self._rivals(request))
        return Refused() if version is None else Written(version)

    def list(self, request: List) -> Listed:
        limit = request.page(LIST_KEYS_MAX)
        prefix, after = request.prefix.encode(), request.after.encode()
        first = b"(" + after if after and after >= prefix else b"[" + prefix
        last = b"(" + prefix + b"\xff" if prefix else b"+"  # no key's UTF-8 has that byte
        (found,) = self._ask(("ZRANGEBYLEX", self._index, first, last, "LIMIT", 0, limit + 1))
        keys = tuple(key.decode() for key in found)
        return Listed(keys[:limit], more=len(keys) > limit)

    def delete(self, request: Delete) -> Deleted:
        for start in range(0, len(request.keys), KEYS_PER_SCRIPT):
            keys = request.keys[start : start + KEYS_PER_SCRIPT]
            self._ask(_call(_DELETE, (self._index, *map(self._name, keys)), keys))
        return Deleted()

    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused:
        command = _call(
            _DELETE_IF_MATCH, (self._index, self._name(request.key)), (request.version, request.key)
        )
        (done,) = self._ask(command, wait=True)
        return Deleted() if done else Refused()

    def remarks(self) -> tuple[Remark, ...]:
        try:
            return remarks_on(self._ask, self.at.replicas)
        except OsqueueError as error:
            return (Remark("server", error.message, "See the other checks of the store.", grave=True),)

    def listen(self, key: str, told: Told) -> Hinted:
        process = self._machine.process()
        with self._lock:
            if self._news is None or self._news[0] != process:
                listener = NewsListener(partial(_connection, self.at, None))
                weakref.finalize(self, listener.end).atexit = False  # the thread ends with the process
                self._news = (process, listener)
            return self._news[1].add(self._channel(key), told)

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.disconnect(inuse_connections=False)  # who waits for a turn is told when it is over
        with self._lock:
            news, self._news = self._news, None
        self._threads.close()
        if news is not None and news[0] == self._machine.process():
            news[1].end()

    def take_turn(self, request: TakeTurn) -> Turn | Answered | Refused:
        return self._turns.take(request)

    def pass_turn(self, request: PassTurn) -> Passed:
        return self._turns.pass_on(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if not isinstance(request, TakeTurn):
            return await super().perform_async(request)
        import asyncio  # here, because blocking callers never need it

        work = self._threads.submit(self.perform, request)
        try:
            return await asyncio.wrap_future(work)
        except BaseException:  # nobody takes what comes of it
            work.add_done_callback(self._pass_on)
            raise

    def _pass_on(self, work: Future[StoreReply]) -> None:
        reply = None if work.cancelled() or work.exception() is not None else work.result()
        if isinstance(reply, Turn):
            self.perform(PassTurn(reply))

    # ── One round trip ───────────────────────────────────────────────────────

    def _name(self, key: str) -> str:
        return f"{self.at.prefix}:o/{key}"

    def _channel(self, key: str) -> str:
        return f"{self.at.prefix}:new/{key}"

    def _script(self, text: str, keys: Sequence[Any], arguments: Sequence[Any]) -> Any:
        return self._ask(_call(_TURN_SCRIPTS[text], keys, arguments))[0]

    def _first_of(self, name: str, seconds: float) -> bytes | None:
        (found,) = self._ask(("BLPOP", name, f"{seconds:.3f}"))
        return None if found is None else bytes(found[1])

    def _rivals(self, request: PutIfMatch) -> tuple[str, ...]:
        """Return the names that must not exist when the object is replaced."""
        return (
            (self._turns.name_of(request.key),)
            if request.yields and self._turns.waits_for(request.key)
            else ()
        )

    def _write(
        self, key: str, body: bytes, condition: str, hot: bool = False, rivals: tuple[str, ...] = ()
    ) -> str | None:
        """The new version, or None where the condition does not hold."""
        if len(body) > BODY_BYTES_MAX:
            raise Rejected(
                f"an object in valkey:// has at most {BODY_BYTES_MAX:,} bytes, and this one has {len(body):,}",
                field="body",
            )
        version = f"{self._machine.bits(VERSION_CHARS * 4):0{VERSION_CHARS}x}"
        command = _call(
            _WRITE,
            (self._index, self._name(key), *rivals),
            (condition, version, key, body, self._channel(key) if hot else ""),
        )
        (done,) = self._ask(command, wait=True)
        return version if done else None

    def _ask(self, *commands: Sequence[Any], wait: bool = False) -> Answers:
        """The answers to commands that are sent together. ``wait``: until the replicas have what they wrote.

        Sent once, with one exception: a script that the server did not know did nothing, and is sent as text. After any
        other error nobody knows whether a write was done. Raises Unavailable, Timeout or NotSupported.
        """
        wait = wait and self.at.replicas > 0
        sent = [*commands, ("WAIT", self.at.replicas, WAIT_TIMEOUT_MS)] if wait else list(commands)
        answers = self._exchange(sent)
        if any(type(answer).__name__ == "NoScriptError" for answer in answers):
            answers = self._exchange([_as_text(command) for command in sent])
        for answer in answers:
            if isinstance(answer, Exception):
                if type(answer).__name__ in _ENDS_CONNECTIONS:
                    self._pool = None
                raise explained(answer, self._server, answered=True)
        if wait and (have := answers.pop()) < self.at.replicas:
            raise too_few(self._server, have, self.at.replicas)
        return answers

    def _exchange(self, commands: Sequence[Sequence[Any]]) -> Answers:
        pool = self._open()
        from valkey.exceptions import ResponseError, ValkeyError

        answers: Answers = []
        try:
            connection: Any = pool.get_connection("")  # the client types little
            try:
                # One packet where it fits: the client cuts longer arguments out, and the server would wake for each.
                connection.send_packed_command([b"".join(connection.pack_commands(commands))])
                for _ in commands:
                    try:
                        answers.append(connection.read_response())
                    except ResponseError as error:
                        answers.append(error)
            except BaseException:
                connection.disconnect()  # there may be answers on it that nobody has read
                raise
            finally:
                pool.release(connection)
        except (ValkeyError, OSError) as error:
            raise explained(error, self._server, answered=False) from None
        return answers

    def _open(self) -> valkey.ConnectionPool:
        """The connections of this store. After a fork the pool makes the child new ones by itself."""
        pool = self._pool
        if pool is None:
            kind, options = _how(self.at, REQUEST_TIMEOUT_S)
            pool = self._pool = _pool_class()(kind, **options)
        if self._idle.use() >= HTTP_IDLE_MS_MAX:
            pool.disconnect(inuse_connections=False)  # the network may have forgotten them
        return pool


@functools.cache
def _pool_class() -> type[valkey.ConnectionPool]:
    """Return the client's pool with a lock that refuses a nested call of the thread that holds it."""
    import valkey

    class Pool(valkey.ConnectionPool):
        def reset(self) -> None:
            super().reset()
            self._lock = forks.lock()

    return Pool


def _how(place: ValkeyPlace, timeout: float | None) -> tuple[Any, dict[str, Any]]:
    """The client's class of connections, and its options. ``timeout``: of an answer, in seconds."""
    import valkey
    from valkey.backoff import NoBackoff
    from valkey.retry import Retry

    # Of itself the client takes a certificate of whatever host.
    tls = {"ssl_check_hostname": True, "ssl_ca_certs": place.ca} if place.tls else {}
    return valkey.SSLConnection if place.tls else valkey.Connection, {
        **tls,
        "host": place.host,
        "port": place.port,
        "db": place.database,
        "credential_provider": place,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": timeout,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),  # the commit protocol repeats, nobody else
        "lib_name": None,
        "lib_version": None,
    }


def _connection(place: ValkeyPlace, timeout: float | None) -> Any:
    kind, options = _how(place, timeout)
    return kind(**options)


def _call(script: _Script, keys: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    return ("EVALSHA", script.sha, len(keys), *keys, *arguments)


_TEXT_OF = {
    script.sha: script.text for script in (_READ, _WRITE, _DELETE, _DELETE_IF_MATCH, *_TURN_SCRIPTS.values())
}


def _as_text(command: Sequence[Any]) -> Sequence[Any]:
    return ("EVAL", _TEXT_OF[command[1]], *command[2:]) if command[0] == "EVALSHA" else command
