"""Several flows, one commit: what they submit to a shard at the same time goes there together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .effects import QueueFlow, Submit
from .request_status import CommitResult


def submit_together(flows: Sequence[QueueFlow[Any]]) -> QueueFlow[list[Any]]:
    """Run flows side by side; answers each one's value, or its error.

    A commit applies what they submit in the order of the flows, so a claim finds the places that endings before it
    have freed. Where they submit to different shards, the first flow's goes first.
    """
    found: list[Any] = [None] * len(flows)
    waiting: dict[int, Any] = {}

    def go_on(at: int, reply: Any, error: Exception | None = None) -> None:
        waiting.pop(at, None)
        try:
            waiting[at] = flows[at].send(reply) if error is None else flows[at].throw(error)
        except StopIteration as stop:
            found[at] = stop.value
        except Exception as failure:  # noqa: BLE001 - it is this flow's answer; its caller decides
            found[at] = failure

    try:
        for at in range(len(flows)):
            go_on(at, None)
        while waiting:
            at = next((at for at, effect in waiting.items() if not _joins(effect)), -1)
            if at >= 0:
                try:
                    reply = yield waiting[at]
                except Exception as failure:  # noqa: BLE001 - it belongs to the flow that waits for it
                    go_on(at, None, failure)
                else:
                    go_on(at, reply)
                continue
            shard = waiting[min(waiting)].shard
            joined = [(at, effect) for at, effect in sorted(waiting.items()) if effect.shard == shard]
            try:
                answer: CommitResult = yield Submit(
                    shard, tuple(op for _, effect in joined for op in effect.ops)
                )
            except Exception as failure:  # noqa: BLE001 - it belongs to the flows that wait for it
                for at, _ in joined:
                    go_on(at, None, failure)
                continue
            start = 0
            for at, effect in joined:
                end = start + len(effect.ops)
                go_on(at, CommitResult(answer.outcomes[start:end], answer.now_ms))
                start = end
    finally:
        for flow in flows:
            flow.close()  # now: left to the collector, what it does at its end could come at any moment
    return found


def _joins(effect: Any) -> bool:
    return isinstance(effect, Submit) and bool(effect.ops) and effect.timeout is None and not effect.look
