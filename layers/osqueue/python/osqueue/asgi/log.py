"""The access log: a line of JSON for each request. Of ids, numbers and codes, never of contents."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
from starlette.types import Scope

from ..masking import without_secrets
from ..server.app import ApiResponse
from .tokens import Identity

IDLE = {"claim", "turn", "health", "heartbeat"}  # of no interest where no job was in it
FAULTS_OF_OURS = 500
LEVELS = ("debug", "info", "warning", "error")
GONE = 499  # as other servers log a caller who hung up

log = logging.getLogger("osqueue.serve.access")


class JsonLines(logging.Formatter):
    """One line of JSON for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": without_secrets(record.getMessage()),
            **getattr(record, "told", {}),
        }
        if record.exc_info:
            told["traceback"] = without_secrets(self.formatException(record.exc_info))
        return msgspec.json.encode(told).decode()


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Have the library and the server log to standard error in this form."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines())
    for name in ("osqueue", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # the rest of what it says, the command says


def log_request(scope: Scope, caller: Identity, response: ApiResponse, seconds: float) -> None:
    """Tell of a request that was answered."""
    notes = response.notes
    level = logging.INFO
    if response.status >= FAULTS_OF_OURS:
        level = logging.ERROR if response.code == "internal" else logging.WARNING
    elif notes.get("operation") in IDLE and not notes.get("job_count"):
        level = logging.DEBUG
    _tell(level, scope, caller, response.status, seconds, notes, response.code)


def log_hung_up(scope: Scope, caller: Identity, seconds: float) -> None:
    """Tell of one whose caller did not wait for the answer."""
    _tell(logging.DEBUG, scope, caller, GONE, seconds, {}, "hung_up")


def _tell(
    level: int,
    scope: Scope,
    caller: Identity,
    status: int,
    seconds: float,
    notes: dict[str, Any],
    code: str,
) -> None:
    if not log.isEnabledFor(level):
        return
    told: dict[str, Any] = {"method": scope["method"], "path": scope["path"], "status": status}
    told["ms"] = round(seconds * 1000, 1)
    client = scope.get("client")
    if client:
        told["from"] = client[0]
    if caller.name is not None:
        told["token"] = caller.name
    if code:
        told["code"] = code
    log.log(level, notes.get("operation", "no route"), extra={"told": {**told, **notes}})
