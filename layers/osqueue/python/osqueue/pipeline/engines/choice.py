"""Which engine runs a job: the one that was asked for, or the one that the size of what is to be read speaks for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from ...commit.effects import Flow
from ...errors import NotInstalled, Unavailable
from ...masking import without_secrets
from ...objects.archive import bodies
from ...objects.inventory import keys
from .. import files, needs
from ..places import store_at
from .base import Engine

AUTO, LOCAL, SPARK = "auto", "local", "spark"
ENGINES = (AUTO, LOCAL, SPARK)
MB = 1024 * 1024
LOCAL_BYTES_MAX = 64 * MB  # of archive or table: some 750,000 jobs, which take about 1 GB of memory
LOCAL_OBJECTS_MAX = 20_000
SAMPLES = 8  # objects that are looked at


class PipelineInput(Struct, frozen=True):
    """What a job reads."""

    address: str
    field: str  # the argument that the address is
    folder: str  # below it
    words: str  # the folder, for people


class Decision(Struct, frozen=True):
    """An engine, and why it is this one."""

    engine: str
    why: str


@contextmanager
def chosen(asked: str, workload: PipelineInput) -> Iterator[Engine]:
    """The engine that was asked for; of ``auto`` one line on standard error says which it is. Raises NotInstalled."""
    name = asked
    if asked == AUTO:
        decision = decided(workload)
        print(f"engine {decision.engine}: {decision.why}", file=sys.stderr, flush=True)
        name = decision.engine
    with engine(name) as made:
        yield made


@contextmanager
def engine(
    name: str, settings: Mapping[str, str] | None = None, cores: int | None = None
) -> Iterator[Engine]:
    """An engine of this name. ``settings`` are Spark's; ``cores`` are those of local, all of them unless given.

    Raises NotInstalled or Unavailable.
    """
    if name == LOCAL:
        if (why := needs.missing_locally()) is not None:
            raise NotInstalled(f"the engine local cannot run. {why}")
        from .local import LocalEngine, cores_here

        local = LocalEngine(cores or cores_here())
        try:
            yield local
        finally:
            local.close()
        return
    if (why := needs.missing()) is not None:
        raise NotInstalled(f"the engine spark cannot run. {why} The engine local does without.")
    from pyspark.errors import PySparkException

    from ..session import session
    from .spark import SparkEngine

    try:
        spark = SparkEngine(session(settings=settings))
    except PySparkException as error:  # Java has said why
        raise Unavailable(f"Spark does not start: {without_secrets(str(error))}") from None
    try:
        yield spark
    finally:
        spark.close()


def decided(workload: PipelineInput) -> Decision:
    """The engine that fits a workload, of those that can run here. Raises NotInstalled where none can."""
    if needs.on_cluster():
        return Decision(SPARK, "this is spark-submit")
    no_local, no_spark = needs.missing_locally(), needs.missing()
    if no_local is not None and no_spark is not None:
        raise NotInstalled(f"the pipeline cannot run. {no_local} For large archives: {no_spark}")
    if no_local is not None:
        return Decision(SPARK, no_local)
    with files.at(store_at(workload.address, workload.field)) as store:
        size = store.run(bytes_of(workload.folder))
    if size is not None and size <= LOCAL_BYTES_MAX:
        told = f"{workload.words} has about {size / MB:.1f} MB; spark from {LOCAL_BYTES_MAX // MB} MB on"
        return Decision(LOCAL, told)
    large = f"{workload.words} has more than {LOCAL_BYTES_MAX // MB} MB or {LOCAL_OBJECTS_MAX:,} objects"
    if no_spark is not None:
        return Decision(LOCAL, f"{large}, but Spark cannot run. {no_spark}")
    return Decision(SPARK, large)


def bytes_of(folder: str) -> Flow[int | None]:
    """About how many bytes a folder has, judged by some of its objects; None: it has too many. Raises Unavailable."""
    found = yield from keys(folder, most=LOCAL_OBJECTS_MAX + 1)
    if len(found) > LOCAL_OBJECTS_MAX:
        return None
    sample = found[:: max(1, len(found) // SAMPLES)]
    read = [len(body) for body in (yield from bodies(sample)) if body is not None]
    return round(len(found) * sum(read) / max(1, len(read)))
