"""The command line as a process: pipes, a terminal, signals, workers, and a Python that lacks the extra."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import osqueue
from osqueue import Queue
from tests.support.patience import PATIENCE
from tests.support.tiny_functions import stat_of, wait_until

COMMAND = [sys.executable, "-m", "osqueue.cli"]
JOBS = 20_000


def environment(address: str) -> dict[str, str]:
    return {**os.environ, "OSQUEUE_ADDRESS": address, "TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


def piped(
    address: str, *args: str, stdin: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *args],
        input=stdin,
        capture_output=True,
        check=False,
        text=True,
        env=environment(address),
        timeout=PATIENCE,
        cwd=cwd,
    )


def on_a_terminal(address: str, *args: str) -> tuple[int, str]:
    """What a person sees who types the command."""
    mine, its = pty.openpty()
    attributes = termios.tcgetattr(its)
    attributes[1] &= ~termios.OPOST  # line ends as they were written
    termios.tcsetattr(its, termios.TCSANOW, attributes)
    process = subprocess.Popen([*COMMAND, *args], stdin=its, stdout=its, stderr=its, env=environment(address))
    os.close(its)
    seen = b""
    while True:
        try:
            data = os.read(mine, 65536)
        except OSError:  # the terminal is closed
            break
        if not data:
            break
        seen += data
    os.close(mine)
    return process.wait(PATIENCE), seen.decode()


def test_twenty_thousand_lines_through_a_pipe(address: str) -> None:
    text = "".join(f'{{"n": {n}}}\n' for n in range(JOBS))
    result = piped(address, "enqueue", "bulk", stdin=text)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no progress bar where nobody looks
    assert json.loads(result.stdout)["enqueued"] == JOBS
    result = piped(address, "claim", "bulk", "--limit", "3")
    assert [json.loads(line)["payload"]["n"] for line in result.stdout.splitlines()] == [0, 1, 2]
    assert json.loads(piped(address, "queue", "stats", "bulk").stdout)["queued"] == JOBS - 3
    bad = piped(address, "enqueue", "bulk", stdin=f"{text}oops\n")
    assert bad.returncode == 1
    assert f"line {JOBS + 1}: " in bad.stderr
    assert json.loads(piped(address, "queue", "stats", "bulk").stdout)["queued"] == JOBS - 3


@pytest.mark.parametrize(
    ("lines", "told"),
    [(21_000, ["Lines up to 20,000 are enqueued. Go on with --from-line 20001."]), (JOBS, [])],
)
def test_a_reader_of_ids_who_goes_early_leaves_word_of_what_is_enqueued(
    address: str, lines: int, told: list[str]
) -> None:
    with subprocess.Popen(
        [*COMMAND, "enqueue", "bulk", "--ids"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(address),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("".join(f"{number}\n" for number in range(lines)))
        process.stdin.close()
        assert json.loads(process.stdout.readline())["line"] == 1
        process.stdout.close()
        assert process.stderr.read().splitlines() == told
        assert process.wait(PATIENCE) == 1
    assert json.loads(piped(address, "queue", "stats", "bulk").stdout)["queued"] == 20_000


def test_a_terminal_gets_tables_and_json_when_asked(address: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"to": "\\u001b[31m[red]ada"}\n2\n')
    status, seen = on_a_terminal(address, "enqueue", "emails", "--file", str(path))
    assert status == 0
    assert "enqueueing" in seen  # the progress bar
    assert "rejected" in seen
    status, seen = on_a_terminal(address, "claim", "emails", "--limit", "2")
    assert "─" in seen
    assert "job id" in seen
    assert "\\u001b[31m[red]ada" in seen
    assert "\x1b[31m" not in seen
    job_id = next(word for word in seen.split() if len(word) == 36 and word.count("-") == 4)
    status, seen = on_a_terminal(address, "job", "emails", job_id)
    assert "processing" in seen
    assert "claimed by" in seen
    for args in (("queue", "ls"), ("queue", "stats", "emails"), ("queue", "jobs", "emails")):
        status, seen = on_a_terminal(address, *args)
        assert status == 0
        assert "emails" in seen or job_id in seen
        assert "{" not in seen
    status, seen = on_a_terminal(address, "queue", "ls", "--json")
    assert json.loads(seen)["queue"] == "emails"
    status, seen = on_a_terminal(address, "enqueue", "emails")
    assert status == 2
    assert "give PAYLOAD, --file, or JSON lines" in seen


# As at a shell's prompt: what a shell runs in the background, and all that is started there, ignores Ctrl-C.
AT_THE_PROMPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from osqueue.cli import main
main()
"""


def test_ctrl_c_is_one_line_and_130(address: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", AT_THE_PROMPT, "complete", "emails"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(address),
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("bad\n" * 1000)  # as many as are answered together
    process.stdin.flush()
    for _ in range(1000):
        process.stdout.readline()
    wait_until(lambda: stat_of(process.pid)[0] == "S", "it does not wait for more")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "error: interrupted: stopped by Ctrl-C."


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_extra_is_named_with_its_remedy(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from osqueue.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, text=True, timeout=PATIENCE
    )
    assert result.returncode == 2
    assert f"needs {missing}" in result.stderr
    assert "pip install 'osqueue[cli]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_rich_is_loaded_only_for_a_terminal(address: str) -> None:
    code = (
        "import sys; from osqueue.cli.app import app; app(['enqueue', 'emails', '1'], standalone_mode=False);"
        "assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(address), check=True, timeout=PATIENCE)


# ── Worker ───────────────────────────────────────────────────────────────────
TASKS = """
import os
from osqueue import AsyncQueue, Queue

q = Queue.connect(os.environ["OSQUEUE_ADDRESS"], "emails")
a = AsyncQueue.connect(os.environ["OSQUEUE_ADDRESS"], "emails")
number = 7

@q.handler
def send(job):
    return job.payload

@a.handler
async def send_async(job):
    return job.payload
"""


@pytest.mark.parametrize("name", ["q", "a"])
def test_a_worker_runs_the_handlers_of_a_module_in_this_folder(
    address: str, tmp_path: Path, name: str
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    piped(address, "enqueue", "emails", stdin="1\n2\n3\n")
    result = piped(address, "worker", f"tasks:{name}", "--concurrency", "2", "--until-empty", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    tally = json.loads(result.stdout)
    assert "worker starts" in result.stderr
    assert "worker ends" not in result.stderr  # the answer says it
    assert (tally["queue"], tally["claimed"], tally["completed"]) == ("emails", 3, 3)


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_workers_of_several_queues_run_side_by_side(
    address: str, tmp_path: Path, processes: tuple[str, ...]
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    more = TASKS.replace('"emails"', '"texts"').replace("return job.payload", 'raise OSError("no line")')
    (tmp_path / "texts.py").write_text(more)
    for queue in ("emails", "texts"):
        piped(address, "enqueue", queue, "--max-attempts", "1", stdin="1\n2\n3\n")
    options = ("--until-empty", "--log-format", "json", *processes)
    result = piped(address, "worker", "tasks:q", "texts:q", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = {each["queue"]: each for each in map(json.loads, result.stdout.splitlines())}
    assert {name: (each["completed"], each["failed"]) for name, each in found.items()} == {
        "emails": (3, 0),
        "texts": (0, 3),
    }
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    errors = [each for each in lines if each["level"] == "error"]
    assert len(errors) == 3
    assert all("OSError: no line" in each["message"] and each["job_id"] for each in errors)


def test_processes_of_a_wrong_command_end_with_what_is_wrong(address: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    result = piped(address, "worker", "tasks:nothing", "--processes", "2", cwd=tmp_path)
    assert result.returncode == 2
    assert "module 'tasks' has no 'nothing'" in result.stderr


BRIEF = """
import os, pathlib
from osqueue import Queue

q = Queue.connect(os.environ["OSQUEUE_ADDRESS"], "emails")
first = pathlib.Path("first")

@q.handler
def send(job):
    if not first.exists():
        first.touch()
        os._exit(3)
"""


def test_a_process_that_ends_by_itself_is_replaced(address: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(BRIEF)
    piped(address, "enqueue", "emails", "1")
    options = ("--processes", "1", "--lease", "1", "--until-empty", "--poll", "100ms")
    result = piped(address, "worker", "tasks:q", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "a worker's process ended with 3; another one begins in 1 s" in result.stderr


def test_a_process_that_is_killed_is_replaced_and_seen_by_what_it_left(address: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    q = osqueue.Queue.connect(address, "emails")
    q.configure(priority=5)  # now there is one
    command = [*COMMAND, "worker", "tasks:q", "--processes", "2"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as crew:
        try:
            wait_until(lambda: len(q.workers()) == 2, "they say nothing")
            before = {each.pid for each in q.workers()}
            killed = min(pid for pid in before if pid is not None)
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: len(q.workers()) == 3, "no other one begins")
            assert len({each.pid for each in q.workers()} - before) == 1
            crew.send_signal(signal.SIGTERM)
            _, said = crew.communicate(timeout=PATIENCE)
        finally:
            crew.kill()  # to no effect on one that has ended
    assert crew.returncode == 0, said
    assert "a worker's process ended with -9; another one begins in 1 s" in said
    assert [each.pid for each in q.workers()] == [killed]  # the others said that they end
    assert json.loads(piped(address, "queue", "workers", "emails").stdout)["pid"] == killed


def test_a_worker_begins_anew_when_its_code_changes(address: str, tmp_path: Path) -> None:
    code = TASKS.replace("return job.payload", 'return "{}"')
    tasks = tmp_path / "tasks.py"
    tasks.write_text(code.replace("{}", "one"))
    q = osqueue.Queue.connect(address, "emails")
    command = [*COMMAND, "worker", "tasks:q", "--reload"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert q.enqueue_and_wait(1, timeout=PATIENCE) == "one"
            tasks.write_text(code.replace("{}", "two again"))
            answers = (q.enqueue_and_wait(1, timeout=PATIENCE) for _ in range(100_000))
            assert "two again" in answers
            worker.send_signal(signal.SIGTERM)
            out, said = worker.communicate(timeout=PATIENCE)
        finally:
            worker.kill()  # to no effect on one that has ended
    assert worker.returncode == 0, said
    assert "tasks.py changed: the worker begins anew" in said
    assert json.loads(out)["queue"] == "emails"


def test_a_worker_that_cannot_be_found_says_what_is_wrong(address: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "broken.py").write_text("import not_installed_anywhere\n")
    code = (
        "import sys; from click.testing import CliRunner; from osqueue.cli.app import app\n"
        "for target in sys.argv[1:]:\n"
        "    result = CliRunner().invoke(app, ['worker', target])\n"
        "    print(result.exit_code, result.stderr.strip() or repr(result.exception))\n"
    )
    targets = ["nowhere:q", "tasks", "tasks:nothing", "tasks:number", ".:q", "broken:q"]
    result = subprocess.run(
        [sys.executable, "-c", code, *targets],
        capture_output=True,
        check=False,
        text=True,
        env=environment(address),
        cwd=tmp_path,
        timeout=PATIENCE,
    )
    told, traced = result.stdout.splitlines()[:6], result.stdout.splitlines()[6:]
    files = [line for line in traced if line.startswith("  File ")]
    assert len(files) == 1, "only the frames of the module itself"
    assert "broken.py" in files[0]
    assert traced[-1].startswith(
        "error: usage: module 'broken' cannot be imported: ModuleNotFoundError: No module"
    )
    for line, says in zip(
        told,
        (
            "2 error: usage: there is no module 'nowhere'",
            "2 error: usage: 'tasks' is not MODULE:QUEUE",
            "2 error: usage: module 'tasks' has no 'nothing'. Its queues: q, a",
            "2 error: usage: 'tasks:number' is a int, not a Queue",
            "2 error: usage: '.' is not a module's name",
            "2 Traceback",
        ),
        strict=True,
    ):
        assert line.startswith(says)


def test_a_lost_reader_is_no_traceback(address: str) -> None:
    Queue.connect(address, "emails").enqueue_many([{"payload": "x" * 200} for _ in range(1000)])
    command = [sys.executable, "-m", "osqueue.cli", "claim", address, "emails", "--limit", "1000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.wait(PATIENCE)


def test_the_package_runs_as_a_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "osqueue", "--version"],
        capture_output=True,
        check=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.stdout == f"osqueue {osqueue.__version__}\n"
