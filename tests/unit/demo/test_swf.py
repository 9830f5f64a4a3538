"""The reader of the Standard Workload Format, on the real log and on damaged ones."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest

from demo.swf import UNKNOWN, SwfError, SwfJob, read_header, read_jobs
from tests.support.places import ROOT

LOG = ROOT / "demo/data/nasa-ipsc-1993.swf.gz"
GOOD = "1 0 -1 1451 128 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1"


@pytest.fixture(scope="module")
def jobs() -> list[SwfJob]:
    return list(read_jobs(LOG))


def write(folder: Path, *lines: str) -> Path:
    path = folder / "some.swf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def with_word(place: int, word: str) -> str:
    """The good line with one of its words, counted from 1, replaced."""
    words = GOOD.split()
    words[place - 1] = word
    return " ".join(words)


def test_the_real_log_holds_every_job_its_header_promises(jobs: list[SwfJob]) -> None:
    header = read_header(LOG)
    assert len(jobs) == 18_239 == header.number("MaxJobs") == header.number("MaxRecords")
    assert len({job.number for job in jobs}) == len(jobs)


def test_the_first_and_the_last_job_are_read_field_by_field(jobs: list[SwfJob]) -> None:
    first, last = jobs[0], jobs[-1]
    assert (first.number, first.submit_s, first.run_s, first.processors) == (1, 0, 1451, 128)
    assert (first.user, first.group, first.application) == (1, 1, UNKNOWN)
    assert (last.number, last.submit_s, last.run_s, last.processors) == (42_264, 7_948_936, 86, 128)
    assert (last.user, last.group, last.application) == (12, 2, UNKNOWN)


def test_the_real_log_is_in_the_order_of_submission_and_fits_its_machine(jobs: list[SwfJob]) -> None:
    assert all(earlier.submit_s <= later.submit_s for earlier, later in pairwise(jobs))
    assert {1, 128} == {min(job.processors for job in jobs), max(job.processors for job in jobs)}
    assert all(job.wait_s == job.status == job.queue == UNKNOWN for job in jobs)


def test_the_header_names_the_machine_and_whom_to_thank() -> None:
    header = read_header(LOG)
    assert header.text("Acknowledge") == "Bill Nitzberg"
    assert header.text("Computer") == "Intel iPSC/860"
    assert header.text("Installation") == "NASA Ames Research Center"
    assert header.number("UnixStartTime") == 749_458_803
    assert header.number("TimeZone") == -28_800
    assert header.number("MaxProcs") == 128


def test_repeated_and_continued_header_fields_keep_all_they_say() -> None:
    header = read_header(LOG)
    assert header.fields["Queue"] == ("0  interactive", "1  batch")
    assert len(header.fields["Note"]) == 4
    assert header.fields["Information"] == (
        "http://www.nas.nasa.gov/\nhttp://www.cs.huji.ac.il/labs/parallel/workload/",
    )


def test_an_absent_header_field_is_none_and_so_is_a_text_asked_for_as_a_number() -> None:
    header = read_header(LOG)
    assert header.text("Nonsense") is None
    assert header.number("Computer") is None


def test_a_plain_file_reads_like_a_compressed_one(tmp_path: Path) -> None:
    plain = tmp_path / "log.swf"
    plain.write_bytes(gzip.decompress(LOG.read_bytes()))
    assert list(read_jobs(plain)) == list(read_jobs(LOG))
    assert read_header(plain) == read_header(LOG)


def test_comments_and_empty_lines_among_the_jobs_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, "; Version: 2.2", "", GOOD, ";", "  ; later", GOOD)
    assert len(list(read_jobs(path))) == 2


def test_an_empty_file_is_a_log_of_no_jobs(tmp_path: Path) -> None:
    path = tmp_path / "empty.swf"
    path.touch()
    assert list(read_jobs(path)) == []
    assert read_header(path).fields == {}


def test_fractions_are_read_where_the_format_averages(tmp_path: Path) -> None:
    [job] = read_jobs(write(tmp_path, with_word(6, "12.5")))
    assert job.cpu_s == 12.5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 0 -1", r"some\.swf, line 2: it has 3 fields where a job has 18"),
        (GOOD + " 7", r"line 2: it has 19 fields"),
        (with_word(4, "soon"), r"line 2: field 4 \(run_s\) is 'soon', not a whole number"),
        (with_word(4, "1.5"), r"field 4 \(run_s\) is '1\.5'"),
        (with_word(5, "1_28"), r"field 5 \(processors\) is '1_28'"),
        (with_word(2, "-2"), r"field 2 \(submit_s\) is '-2', not a whole number of at least -1"),
        (with_word(6, "nan"), r"field 6 \(cpu_s\) is 'nan', not a number"),
        (with_word(7, "inf"), r"field 7 \(memory_kb\) is 'inf'"),
        (with_word(1, "\N{ARABIC-INDIC DIGIT ONE}"), r"field 1 \(number\)"),
        ("\0" * 5000, r"line 2: it is longer than 4096 bytes"),
    ],
)
def test_a_damaged_line_is_refused_by_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    jobs = read_jobs(write(tmp_path, GOOD, line, GOOD))
    assert next(jobs).number == 1
    with pytest.raises(SwfError, match=message):
        next(jobs)


def test_bytes_that_are_no_text_are_refused_as_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "some.swf"
    path.write_bytes(GOOD.encode() + b"\n\xff\xfe 3\n")
    with pytest.raises(SwfError, match="line 2: it has 2 fields"):
        list(read_jobs(path))


def test_a_compressed_log_that_was_cut_short_says_so_after_the_jobs_it_still_has(tmp_path: Path) -> None:
    path = tmp_path / "cut.swf.gz"
    path.write_bytes(LOG.read_bytes()[:100_000])
    jobs = read_jobs(path)
    assert next(jobs).number == 1
    with pytest.raises(SwfError, match="the compressed file is damaged"):
        list(jobs)


def test_a_missing_file_is_an_ordinary_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(read_jobs(tmp_path / "nowhere.swf"))
