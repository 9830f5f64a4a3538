"""An Api behind a small HTTP server on loopback, for tests of what talks to it. Also answers direct invocations.

    with api_server("memory://") as url: ...

Plain requests go to ``{url}/v1/…``; boto3's Lambda client, with ``endpoint_url=url``, invokes ``osqueue-test-enqueue``
and its siblings.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from awslambdaric.lambda_runtime_marshaller import to_json

from osqueue.aws_lambda.direct_event import answer_of, request_of
from osqueue.contract.functions import BY_NAME, deployed_name
from osqueue.contract.operations import ROUTES
from osqueue.limits import REQUEST_TIMEOUT_S
from osqueue.server.app import Api, ApiRequest, ApiResponse
from osqueue.server.reading import pairs_of
from osqueue.stores.relay import PATH as TRANSFERS
from osqueue.stores.relay import Relay, RelayRefusal

INVOCATIONS = ("/2015-03-31/functions/", "/invocations")
PREFIX = "osqueue-test"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer goes out in two writes
    server: _Server

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        path, _, query = self.path.partition("?")
        if path.startswith(INVOCATIONS[0]) and path.endswith(INVOCATIONS[1]):
            self._send(self._invoked(path[len(INVOCATIONS[0]) : -len(INVOCATIONS[1])], json.loads(body)))
            return
        if path.startswith(TRANSFERS):
            self._send(self._transferred(path, body))
            return
        self._send(self.server.api.answer(ApiRequest(self.command, path, pairs_of(query), body)))

    def _transferred(self, path: str, body: bytes) -> ApiResponse:
        api = self.server.api
        try:
            ticket = self.server.relay.open(api.store, self.command, path)
        except RelayRefusal as refusal:
            return ApiResponse(refusal.answer.status, refusal.answer.body)
        answer = self.server.relay.carry_out(api.store, ticket, body)
        return ApiResponse(answer.status, answer.body)

    def _invoked(self, name: str, event: dict[str, Any]) -> ApiResponse:
        function = name.removeprefix(f"{PREFIX}-")
        if function not in BY_NAME or name != deployed_name(PREFIX, function):
            error = {"Type": "User", "Message": f"Function not found: {name}"}
            return ApiResponse(
                404, json.dumps(error).encode(), {"x-amzn-errortype": "ResourceNotFoundException"}
            )
        request = request_of(event, REQUEST_TIMEOUT_S)
        done = request if isinstance(request, ApiResponse) else self.server.apis[function].answer(request)
        return ApiResponse(200, to_json(answer_of(done)).encode(), {"x-amz-executed-version": "$LATEST"})

    def _send(self, response: ApiResponse) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if response.status != 204:
            self.send_header("content-length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = do_HEAD = do_OPTIONS = _answer  # noqa: N815 - http.server's names

    def log_message(self, *args: Any) -> None:
        """Tests have their own output."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: Api) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api
        self.relay = Relay(api.machine)
        self.apis = {
            name: Api(
                api.store,
                machine=api.machine,
                routes=[route for route in ROUTES if route.function == name],
            )
            for name in BY_NAME
        }


@contextmanager
def api_server(store: Any, **options: Any) -> Iterator[str]:
    """Serve a store, or the one at an address, while the block lasts; gives the base URL."""
    with _Server(Api(store, **options)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
