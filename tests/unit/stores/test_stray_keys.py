"""Keys that obstore cannot name, as its errors and the listings of the stores show them."""

from __future__ import annotations

import pytest

from osqueue.stores.stray_keys import ListedPage, ended_a_listing, is_nameable, named_in, page_in


@pytest.mark.parametrize("path", ["a", "a/b", "a/z/", "a/...", "a/.x", "a/..x", "a/x.", "é/~%*#?", "a/\x85"])
def test_ordinary_paths_are_nameable(path: str) -> None:
    assert is_nameable(path)


@pytest.mark.parametrize(
    "path", ["a//b", "/a", "a//", "a/.", "a/..", "./a", "../a", "a/./b", "a/../b", "a/\n", "a\x00b", "a\x7f"]
)
def test_stray_paths_are_not_nameable(path: str) -> None:
    assert not is_nameable(path)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('invalid path: Path "a//x" contained empty path segment\n\nDebug source:', "a//x"),
        (
            'invalid path: Error parsing Path "a/q"\n..": Encountered illegal character sequence "\n" w',
            'a/q"\n..',
        ),
    ],
)
def test_errors_of_obstore_name_the_key(text: str, key: str) -> None:
    error = Exception(f"Encountered object with {text}")
    assert ended_a_listing(error)
    assert named_in(error) == key
    assert not ended_a_listing(Exception("of another kind"))
    assert named_in(Exception("of another kind")) == ""


def test_pages_hold_the_keys_of_objects_alone() -> None:
    azure = (
        b"\xef\xbb\xbf<?xml version='1.0' encoding='utf-8'?><EnumerationResults><Prefix>p</Prefix><Blobs>"
        b"<Blob><Name>p/a</Name><Properties><Etag>1</Etag></Properties></Blob>"
        b"<Blob><Name Encoded='true'>p/%01%2F</Name></Blob></Blobs><NextMarker /></EnumerationResults>"
    )
    assert page_in(azure) == ListedPage(["p/a", "p/\x01/"], "")
    gcs = (
        b"<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'><Name>bucket</Name><Prefix>p/</Prefix>"
        b"<NextContinuationToken>next</NextContinuationToken>"
        b"<Contents><Key>p//x</Key><Owner><Name>n</Name></Owner></Contents></ListBucketResult>"
    )
    assert page_in(gcs) == ListedPage(["p//x"], "next")
    with pytest.raises(ValueError, match="not XML"):
        page_in(b"<html>")
