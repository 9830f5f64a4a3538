"""What a Valkey or Redis server is set to, as far as it decides what is kept: for ``osqueue doctor``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import OsqueueError
from .base import Remark

Ask = Callable[..., list[Any]]

_SECTIONS = ("server", "persistence", "replication", "memory", "cluster")
_LOST_BY_FSYNC = {
    "everysec": "a kill or a power cut may lose the last second or two of what was acknowledged",
    "no": "a power cut may lose what the operating system has not written, often the last 30 s",
}
_AOF_REMEDY = (
    "For jobs that may not be lost: CONFIG SET appendonly yes, CONFIG SET appendfsync always, CONFIG REWRITE."
)


def remarks_on(ask: Ask, replicas: int) -> tuple[Remark, ...]:
    """What there is to say; ``replicas``: of how many the address wants an answer. Raises Unavailable."""
    told = dict[str, str]()
    for text in ask(*(("INFO", section) for section in _SECTIONS)):
        lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
        told |= {name: value for name, separator, value in lines if separator}
    return (
        _server(told),
        _durability(told, _setting(ask, "appendfsync")),
        _eviction(told),
        _replication(told, replicas),
    )


def _setting(ask: Ask, name: str) -> str | None:
    """One setting; None where the server tells none, as at many who rent servers out."""
    try:
        (pair,) = ask(("CONFIG", "GET", name))
    except OsqueueError:
        return None
    return pair[1].decode() if pair else None


def _server(told: dict[str, str]) -> Remark:
    software = "valkey" if "valkey_version" in told else "redis"
    version = told.get(f"{software}_version", "of an unknown version")
    if told.get("cluster_enabled") == "1":
        return Remark(
            "server",
            f"{software} {version} is a node of a cluster",
            "Use a server of its own, or a primary with replicas.",
            grave=True,
        )
    if told.get("role") != "master":
        return Remark(
            "server",
            f"{software} {version} is a replica",
            "Name the primary in the address: a replica refuses writes and lags behind.",
            grave=True,
        )
    return Remark("server", f"{software} {version}, a primary")


def _durability(told: dict[str, str], fsync: str | None) -> Remark:
    check = "durability"
    if told.get("aof_enabled") != "1":
        return Remark(
            check,
            "appendonly is off: when the server ends, jobs since its last snapshot are lost",
            _AOF_REMEDY,
            grave=True,
        )
    if told.get("aof_last_write_status", "ok") != "ok":
        return Remark(
            check,
            "the last write to the append-only file failed",
            "Look at the server's log and disk.",
            grave=True,
        )
    if fsync is None:
        return Remark(
            check,
            "appendonly is on; the server does not tell its appendfsync",
            "Only appendfsync always keeps every acknowledged job in a power cut: look it up.",
        )
    if fsync == "always":
        return Remark(check, "appendonly is on with appendfsync always: what is acknowledged is on its disk")
    return Remark(
        check, f"appendfsync is {fsync}: {_LOST_BY_FSYNC.get(fsync, 'its meaning is unknown')}", _AOF_REMEDY
    )


def _eviction(told: dict[str, str]) -> Remark:
    policy = told.get("maxmemory_policy", "unknown")
    limit = int(told.get("maxmemory", "0"))
    if policy == "noeviction":
        return Remark("eviction", "maxmemory-policy is noeviction: a full server refuses writes")
    grave = policy.startswith("allkeys") and limit > 0
    does = "deletes jobs when it is full" if grave else "is no promise to keep every key"
    return Remark(
        "eviction",
        f"maxmemory-policy is {policy}, which {does}",
        "CONFIG SET maxmemory-policy noeviction, CONFIG REWRITE.",
        grave=grave,
    )


def _replication(told: dict[str, str], wished: int) -> Remark:
    check = "replicas"
    connected = int(told.get("connected_slaves", "0"))
    if connected < wished:
        return Remark(
            check,
            f"{connected} are connected, and the address wants an answer of {wished}",
            "Start them, or ask for fewer with ?replicas=: until then no write is acknowledged.",
            grave=True,
        )
    if connected > wished:
        return Remark(
            check,
            f"{connected} are connected, and an answer waits for {wished}: a failover to one that lags behind loses "
            "acknowledged jobs in silence",
            f"Add ?replicas={connected} to the address, and let none but those replicas be promoted.",
        )
    if connected:
        return Remark(check, f"every answer waits until all {connected} have the write in their memory")
    return Remark(check, "there is none: what is kept is what this server keeps")
