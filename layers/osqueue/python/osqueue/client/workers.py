"""What a worker says of itself, over an API."""

from __future__ import annotations

from msgspec.structs import asdict

from ..contract.schemas import NewWorkerEntry
from ..errors import NotFound
from ..model.worker import WorkerEntry, check_entry
from .call import ApiClient, RemoteFlow

WORD_SECONDS_MAX = 5.0  # for one try; there is no second, since it is said again soon


class RemoteWorkers(ApiClient):
    """The flows of the registry of workers. Looking at it: ``admin``."""

    def put_worker(self, name: str, entry: WorkerEntry) -> RemoteFlow[bool]:
        """Say that a worker is there, under an id that it drew; False: there is no such queue yet."""
        check_entry(entry)
        try:
            yield from self.ask(
                "put_worker",
                worker=name,
                body=NewWorkerEntry(**asdict(entry)),
                tries=1,
                patience=WORD_SECONDS_MAX,
            )
        except NotFound:
            return False
        return True

    def delete_worker(self, name: str) -> RemoteFlow[None]:
        """Say that a worker ends."""
        yield from self.ask("delete_worker", worker=name, tries=1, patience=WORD_SECONDS_MAX)
