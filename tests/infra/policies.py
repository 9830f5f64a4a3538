"""Reading IAM policies as AWS does, as far as ours go: wildcards, conditions, a deny before every allow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

BUCKET = "arn:aws:s3:::bucket"
TABLES = "arn:aws:s3:::tables"


# The bucket by its name, as other stacks than its own write it.
_BY_NAME = re.compile(r"arn:<AWS::Partition>:s3:::osqueue-[a-z0-9-]+-<AWS::AccountId>-<AWS::Region>-an")


def plain(value: Any) -> str:
    """A value of a template as text, with the buckets' ARNs in place of what CloudFormation puts there."""
    return _BY_NAME.sub(BUCKET, _text(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    (function, given), *rest = value.items()
    assert not rest
    if function == "Fn::Join":
        return str(given[0].join(map(_text, given[1])))
    if function == "Fn::Sub":
        return str(given)
    if function == "Fn::GetAtt" and given[0].startswith("Bucket"):
        return BUCKET
    if function == "Fn::GetAtt" and given[0].startswith("Tables"):
        return TABLES
    return f"<{given}>"


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def matches(pattern: str, text: str) -> bool:
    """IAM's wildcards: ``*`` is any text, slashes included, ``?`` one character."""
    parts = {"*": ".*", "?": "."}
    return (
        re.fullmatch("".join(parts.get(each) or re.escape(each) for each in pattern), text, re.DOTALL)
        is not None
    )


def holds(conditions: Mapping[str, Mapping[str, str]], context: Mapping[str, str]) -> bool:
    """Whether every condition of a statement holds for a request."""
    for operator, keys in conditions.items():
        for key, wanted in keys.items():
            if operator == "Null":
                if (key not in context) != (wanted == "true"):
                    return False
            elif operator in ("Bool", "StringEquals"):
                if context.get(key) != wanted:
                    return False
            elif operator == "NumericLessThan":
                if not (key in context and float(context[key]) < float(wanted)):
                    return False
            else:
                raise AssertionError(f"no policy of ours uses {operator}")
    return True


def applies(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    return (
        any(matches(each, action) for each in listed(statement["Action"]))
        and any(matches(plain(each), resource) for each in listed(statement["Resource"]))
        and holds(statement.get("Condition", {}), context)
    )


def allowed(
    statements: Iterable[Mapping[str, Any]],
    action: str,
    resource: str,
    context: Mapping[str, str] | None = None,
) -> bool:
    """Whether these statements together let a request pass. TLS 1.3 is assumed unless the context says otherwise."""
    full = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3", **(context or {})}
    applying = [each["Effect"] for each in statements if applies(each, action, resource, full)]
    return "Deny" not in applying and "Allow" in applying
