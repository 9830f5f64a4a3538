"""What the errors of a Valkey or Redis server mean to a caller: what happened and what to do.

The text of an exception never reaches a caller as it is: a server may quote a command in it, and with it a body.
"""

from __future__ import annotations

import re

from ..errors import NotSupported, OsqueueError, Timeout, Unavailable, pass_on_interruption
from ..masking import without_secrets
from .certificates import CA_OPTION, certificate_refused

CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 20.0  # one request, body and answer
WAIT_TIMEOUT_MS = 2_000  # for replicas to have a write

_CLUSTER = frozenset({"MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN", "TRYAGAIN"})
# The client drops the server's word where it has a class for an error.
_WORD_OF = {
    "AuthenticationError": "NOAUTH",
    "AuthenticationWrongNumberOfArgsError": "NOAUTH",
    "NoPermissionError": "NOPERM",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
}
_REMEDIES = {
    "NOAUTH": "give the right user and password in the address (valkey://user:password@host) or the password in "
    "VALKEYCLI_AUTH",
    "NOPERM": "allow the user +@read +@write +@scripting +@connection +@pubsub +wait on ~prefix:* and "
    "&prefix:*, and +info +config|get for `osqueue doctor`",
    "OOM": "the server is at its maxmemory; raise it, or let workers finish jobs and reap",
    "READONLY": "this server is a replica; name the primary in the address",
    "LOADING": "the server is reading its data; try again when it is done",
    "MASTERDOWN": "this server is a replica without its primary; name the primary in the address",
    "MISCONF": "the server cannot write to its disk; look at its log and its disk",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for; start them",
    "BUSY": "another client's script keeps the server busy; end it with SCRIPT KILL",
    "WRONGTYPE": "another application has keys of this prefix; put another prefix into the address",
}
_PERMANENT = frozenset({"NOAUTH", "NOPERM", "WRONGTYPE"})  # until somebody changes something


def word_of(error: Exception) -> str:
    """The server's word for an error, such as OOM; ERR for those that have none of their own."""
    word = _WORD_OF.get(type(error).__name__)
    if word is None:
        first = str(error).partition(" ")[0]
        word = first if re.fullmatch(r"[A-Z]{3,}", first) else "ERR"
    return word


def explained(error: Exception, server: str, *, answered: bool) -> OsqueueError:
    """The error to raise for one of the client's. ``answered``: the server said it, and changed nothing."""
    pass_on_interruption(error)
    where = f"the server {server}"
    name = type(error).__name__
    if name == "TimeoutError":
        return Timeout(
            f"{where}: no answer in time (connect {CONNECT_TIMEOUT_S:g} s, request {REQUEST_TIMEOUT_S:g} s). "
            "Remedy: try again; check the network and the server if it lasts."
        )
    if not answered and (refused := certificate_refused(str(error), CA_OPTION)):
        return Unavailable(f"{where}: {refused}", permanent=True)
    word = word_of(error)
    if word in _CLUSTER:
        return NotSupported(
            f"{where} is a node of a cluster, which this release does not know: name a server of its own, or a primary "
            "with replicas.",
            field="address",
        )
    if word in _REMEDIES:
        return Unavailable(
            f"{where} answered {word}. Remedy: {_REMEDIES[word]}.", permanent=word in _PERMANENT
        )
    if answered:
        return Unavailable(
            f"{where} answered: {_presentable(error)}. Remedy: look at its log and its settings."
        )
    return Unavailable(
        f"{where} cannot be reached: {_presentable(error)}. Remedy: check host, port and that it runs."
    )


def too_few(server: str, have: int, wished: int) -> OsqueueError:
    """A write that is at the server, but not at as many replicas as the address wants."""
    return Unavailable(
        f"the server {server} has the write, and {have} of {wished} replicas said so within "
        f"{WAIT_TIMEOUT_MS // 1000} s. Remedy: start the replicas, or ask for fewer with ?replicas=."
    )


def _presentable(error: Exception) -> str:
    """The first line of a message, without the arguments of a command."""
    line = str(error).strip().partition("\n")[0]
    for end in (", with args", " script:", " user_script", "'"):
        line = line.partition(end)[0]
    return without_secrets(line)[:160].rstrip(" .:,") or type(error).__name__
