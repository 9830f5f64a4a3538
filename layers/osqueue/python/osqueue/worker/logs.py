"""What a worker's log says of jobs: how an attempt failed, and which job a record of a handler belongs to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from ..model.fields import moment
from ..model.printable import safe
from ..model.validation import StoredError
from .job import WorkerJob
from .outcomes import RunFailed, raised_at

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log = logging.getLogger("osqueue.worker")
_job: ContextVar[WorkerJob[Any] | None] = ContextVar("osqueue_job", default=None)


@contextmanager
def running(jobs: Sequence[WorkerJob[Any]]) -> Iterator[None]:
    """While a handler runs: records of its thread, or of its task, belong to its job; of several, to none."""
    token = _job.set(jobs[0] if len(jobs) == 1 else None)
    try:
        yield
    finally:
        _job.reset(token)


class JobLogFilter(logging.Filter):
    """Gives every record ``job_id``, ``queue`` and ``attempt``: of the job whose handler runs here, else None.

    Add it to a handler of ``logging``, and a format may say ``%(job_id)s``. It keeps all records.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add them; what the record says itself stays."""
        job = _job.get()
        for name in ("job_id", "queue", "attempt"):
            if not hasattr(record, name):
                setattr(record, name, None if job is None else getattr(job, name))
        return True


class TextFormatter(logging.Formatter):
    """A line of text, with the job's id where it does not stand there anyway."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """The line before the traceback."""
        line, job_id = super().formatMessage(record), getattr(record, "job_id", None)
        return line if not job_id or job_id in record.message else f"{line} [job {job_id}]"


class JsonFormatter(logging.Formatter):
    """A JSON object on a line: at, level, logger, message; job_id, queue, attempt and traceback where there are."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields: dict[str, Any] = {
            "at": moment(round(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "job_id": getattr(record, "job_id", None),
            "queue": getattr(record, "queue", None),
            "attempt": getattr(record, "attempt", None),
            "traceback": self.formatException(record.exc_info) if record.exc_info else None,
        }
        told = {name: value for name, value in fields.items() if value is not None}
        return msgspec.json.encode(told).decode()


def set_up(root: logging.Logger, level: str | None, form: str | None) -> None:
    """Log to standard error. Without a wish for either, what the program has set up stays as it is."""
    if root.handlers and level is None and form is None:
        return
    if not root.handlers or form is not None:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        handler.addFilter(JobLogFilter())
        root.handlers[:] = [handler]
    root.setLevel((level or "info").upper())


def log_failure(job: WorkerJob[Any], ending: RunFailed, state: str, with_traceback: bool) -> None:
    """An attempt that failed: a warning, or an error where it made a dead letter of its job."""
    error = ending.error
    text = safe(error.text if isinstance(error, StoredError) else error)
    where = "" if job.error is None else f" (at {raised_at(job.error)})"
    shown = job.error if with_traceback or log.isEnabledFor(logging.DEBUG) else None
    dead = state == "failed"
    log.log(
        logging.ERROR if dead else logging.WARNING,
        "job %s: attempt %d of %d failed%s: %s%s",
        job.job_id,
        job.attempt,
        job.max_attempts,
        ", and the job is a dead letter" if dead else "",
        text,
        where,
        exc_info=shown,
        extra={"job_id": job.job_id, "queue": job.queue, "attempt": job.attempt},
    )
