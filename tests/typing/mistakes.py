"""Mistakes that a type checker finds: each line carries what mypy and what pyright call it.

A line that one of them lets pass fails ``make types``: its mark is unused then. Nobody runs this module.
"""

from __future__ import annotations

from osqueue import AsyncQueue, AsyncWorkerJob, Queue, WorkerJob


class Mail:
    to: str = ""


class Invoice:
    pass


q = Queue.connect("memory://", "mails", type=Mail)


# Payloads
q.enqueue(Invoice())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
q.enqueue_and_wait("ada@example.com")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
too = q.claim()[0].payload.too  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]

# Names of methods
q.claim()[0].compleet()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
q.enqeue(Mail())  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

# Names of options
q.run(concurency=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
q.enqueue(Mail(), dely=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
q.claim(limt=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
q.configure(max_attemps=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
q.redrive(dryrun=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
q.claim()[0].fail("no", retryin=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
q.handler(knd="slow")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
q.connect("memory://", "mails", tpye=Mail)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

# Types of options
q.run(concurrency="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
q.enqueue(Mail(), units=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
q.enqueue(Mail(), priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
q.configure(paused="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Handlers
@q.handler  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType,reportCallIssue,reportUntypedFunctionDecorator]
def of_another_payload(job: WorkerJob[Invoice]) -> None: ...


@q.handler(kind="slow")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType,reportCallIssue,reportUntypedFunctionDecorator]
async def of_another_payload_too(job: AsyncWorkerJob[Invoice]) -> None: ...


@q.handler  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType,reportCallIssue,reportUntypedFunctionDecorator]
def of_two_arguments(job: WorkerJob[Mail], more: int) -> None: ...


@q.handler  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType,reportCallIssue,reportUntypedFunctionDecorator]
def blocking_with_an_async_job(job: AsyncWorkerJob[Mail]) -> None: ...


@q.handler(batch=10)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType,reportCallIssue,reportUntypedFunctionDecorator]
def of_one_job_and_not_of_several(job: WorkerJob[Mail]) -> None: ...


q.handler(within=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


# Coroutines
async def the_same_with_coroutines(aq: AsyncQueue[Mail]) -> None:
    await aq.enqueue(Invoice())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (await aq.claim())[0].compleet()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    await aq.run(concurency=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    aq.claim()[0]  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    aq.close()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
