"""Replays a real log of 18,239 jobs through the API and checks that not one is lost: ``python -m demo``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from demo import report, screen
from demo.crew import ROOT, Crashed
from demo.history import PipelineCheck, write_history
from demo.plan import LOG, ReplayPlan, load
from demo.push import PushResult, push
from demo.replay import ReplayStuck, replay
from demo.stack import StackNotStarted
from demo.stock import ReplayResult, recount
from demo.swf import SwfError, read_jobs
from osqueue import errors
from osqueue.pipeline.engines.choice import LOCAL, SPARK
from osqueue.pipeline.needs import missing, missing_locally

if TYPE_CHECKING:
    from rich.console import Console

WORKERS_MAX = 64
INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C ended


def main() -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(
        prog="python -m demo", description=(__doc__ or "").partition(":")[0] + "."
    )
    parser.add_argument("--workers", type=int, default=4, help="worker processes (4)")
    parser.add_argument("--jobs", type=int, metavar="N", help="only the first N jobs of the log")
    parser.add_argument(
        "--dir", type=Path, help="a new folder for the queue, kept (a temporary one, deleted)"
    )
    parser.add_argument("--seed", type=int, default=1, help="which jobs fail and which worker is killed (1)")
    parser.add_argument(
        "--embedded", action="store_true", help="work on the folder directly, with no API in between"
    )
    parser.add_argument("--no-kill", action="store_true", help="let every worker live")
    parser.add_argument(
        "--no-pipeline", action="store_true", help="end with the verdict: no tables, no report"
    )
    parser.add_argument(
        "--no-push", action="store_true", help="without the last part, in which no worker runs"
    )
    parser.add_argument(
        "--engine",
        choices=(LOCAL, SPARK),
        default=LOCAL,
        help="of the pipeline: DuckDB, or Spark with Java (local)",
    )
    parser.add_argument(
        "--json", action="store_true", help="the result as one JSON object on standard output"
    )
    parser.add_argument(
        "--recount", type=Path, metavar="DIR", help="only count a kept replay again, as it lies there now"
    )
    options = parser.parse_args()
    if not 1 <= options.workers <= WORKERS_MAX:
        parser.error(f"--workers: from 1 to {WORKERS_MAX}")
    if options.workers < 2 and not options.no_kill:
        parser.error("--workers: one of them will be killed, so take 2 or more, or add --no-kill")
    if options.jobs is not None and options.jobs < 1:
        parser.error("--jobs: 1 or more")
    if (
        options.dir is not None
        and options.dir.exists()
        and (not options.dir.is_dir() or any(options.dir.iterdir()))
    ):
        parser.error(f"--dir: {options.dir} is not empty. Name a new folder: a replay starts from nothing.")
    if options.recount is not None and not (options.recount / "plan.json").is_file():
        parser.error(f"--recount: {options.recount} is not the folder of a replay.")
    try:
        return run(options) if options.recount is None else count_again(options)
    except KeyboardInterrupt:
        kept = options.dir or options.recount
        rest = f" The queue stays in {kept.resolve() / 'store'}." if kept else ""
        print(f"\nStopped; every process has ended.{rest}", file=sys.stderr)
        return INTERRUPTED
    except (
        Crashed,
        StackNotStarted,
        ReplayStuck,
        SwfError,
        errors.OsqueueError,
        msgspec.MsgspecError,
        OSError,
        EOFError,
    ) as error:
        print(f"The replay stopped: {error}", file=sys.stderr)
        return 1


def run(options: argparse.Namespace) -> int:
    """One replay, from the introduction to the verdict; answers the exit status."""
    in_log = sum(1 for _ in read_jobs(LOG))
    jobs = in_log if options.jobs is None else min(options.jobs, in_log)
    folder = options.dir.resolve() if options.dir else Path(tempfile.mkdtemp(prefix="osqueue-demo-"))
    plan = ReplayPlan(str(folder), jobs, options.workers, options.seed)
    kill = not options.no_kill
    console = None if options.json else screen.console_of(sys.stdout)
    try:
        if not options.json:
            print(screen.introduction(plan, kill, options.embedded), flush=True)
        with screen.watching(plan, console, sys.stderr if options.json else sys.stdout) as watcher:
            result = replay(plan, kill, watcher, options.embedded)
        return conclude(plan, result, options)
    finally:
        if options.dir is None:
            shutil.rmtree(folder, ignore_errors=True)  # last: on some disks it takes seconds


def count_again(options: argparse.Namespace) -> int:
    """Only the counting, and the pipeline; answers the exit status."""
    folder = options.recount.resolve()
    plan = msgspec.structs.replace(load(folder / "plan.json"), folder=str(folder))
    return conclude(plan, recount(plan), options)


def conclude(plan: ReplayPlan, result: ReplayResult, options: argparse.Namespace) -> int:
    """Tell the result, run the pipeline over the archive, tell what came of it; answers the exit status."""
    console = None if options.json else screen.console_of(sys.stdout)
    if not options.json:
        report.show(plan, result, console)
        if options.dir is not None:
            print(f"The queue stays in {plan.store}, its archive below archive/.", flush=True)
    history, stopped = None, False
    if not options.no_pipeline:
        try:
            history = analysed(plan, result, options, console)
        except Crashed as error:
            print(f"The pipeline stopped: {error}", file=sys.stderr)
            stopped = True
    pushed = None if options.no_push or options.embedded or options.recount else pushed_letters()
    if options.json:
        told = {**msgspec.structs.asdict(result), "pipeline": history, "push": pushed}
        print(msgspec.json.encode(told).decode(), flush=True)
    elif history is not None:
        report.show_history(history, console)
    if pushed is not None and not options.json:
        print(pushed.line(), flush=True)
    lost = pushed is not None and pushed.lost > 0
    problems = result.account.problems or (history is not None and history.problems)
    return 1 if stopped or lost or problems else 0


def pushed_letters() -> PushResult:
    """What comes of a queue that no worker polls, in a stack of its own."""
    with tempfile.TemporaryDirectory(prefix="osqueue-push-", ignore_cleanup_errors=True) as folder:
        return push(Path(folder))


def analysed(
    plan: ReplayPlan, result: ReplayResult, options: argparse.Namespace, console: Console | None
) -> PipelineCheck | None:
    """What the pipeline makes of the archive; None where it cannot run, which is said."""
    if (why := missing() if options.engine == SPARK else missing_locally()) is not None:
        print(f"There is no report, for the pipeline cannot run here. {why}", file=sys.stderr)
        return None
    kept = options.dir is not None or options.recount is not None
    out = (Path(plan.folder) if kept else ROOT / "build/demo") / "report.html"
    with screen.analysing(console, sys.stderr if options.json else sys.stdout) as watch:
        return write_history(plan, result, out, options.engine, watch)


if __name__ == "__main__":
    sys.exit(main())
