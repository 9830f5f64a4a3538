"""What an error says of a request that brought no reply."""

from __future__ import annotations

import pytest

from osqueue.stores.faults import presentable

LINE = "Generic S3 error: Error performing PUT {url} in 404.9µs - HTTP error: error sending request"
URL = "http://127.0.0.1:9000/bucket/" + "a/long/key/" * 20


@pytest.mark.parametrize(
    ("innermost", "cause"),
    [
        ('Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }', "Connection refused"),
        (
            'Custom { error: "failed to lookup address information: Name or service not known" }',
            "failed to lookup address information: Name or service not known",
        ),
        ("hyper::Error(IncompleteMessage)", "the connection ended before the reply was complete"),
        (
            "Custom { kind: UnexpectedEof, error: IncompleteBody }",
            "the connection ended before the reply was complete",
        ),
    ],
)
def test_an_error_names_the_innermost_cause_however_long_the_url_is(innermost: str, cause: str) -> None:
    text = f"{LINE.format(url=URL)}\n\nDebug source:\nGeneric {{ source: {innermost} }}"
    assert (
        presentable(text)
        == f"Generic S3 error: Error performing PUT - HTTP error: error sending request: {cause}"
    )


def test_an_error_shows_no_url() -> None:
    signed = "https://bucket.example/key?sig=hunter2"
    text = f'{LINE.format(url=signed)}\n\nCustom {{ error: "see {signed}" }}'
    assert presentable(text) == "Generic S3 error: Error performing PUT - HTTP error: error sending request"
