"""The server that runs for long: the API as an ASGI application, who may call it, and the processes that serve it."""
