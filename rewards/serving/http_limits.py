"""uvicorn's HTTP protocol with two limits that it leaves open: the time and the size of a request's head."""

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_WITHIN_S = 10.0
LARGEST_HEAD = 65_536  # bytes of request line and headers, trailers included
REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


def limited_protocol(within_s: float) -> type[asyncio.Protocol]:
    """The protocol of a server whose whole requests may take `within_s` seconds; their heads never more than 10."""
    return type("Limited", (LimitedProtocol,), {"head_within_s": min(HEAD_WITHIN_S, within_s)})


class LimitedProtocol(HttpToolsProtocol):
    """A connection that sends no head, or an endless one, is answered and closed. All errors are JSON."""

    head_within_s = HEAD_WITHIN_S
    _deadline: asyncio.TimerHandle | None = None
    _in_head = True
    _completed = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head and self._deadline is None:  # the next request of a connection that was kept alive
            self._start_clock()
        began_in_head, self._completed = self._in_head, False
        super().data_received(data)
        if began_in_head and self._in_head and not self._completed:  # all of it was head, and there is more to come
            self._head_bytes += len(data)
            if self._head_bytes > LARGEST_HEAD:
                self.refuse(431, f"the head of the request has more than {LARGEST_HEAD} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > 2 * LARGEST_HEAD:  # trailers of a chunked body come here as well
            raise ValueError("headers without end")  # the parser makes a 400 of it
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_clock()
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._completed, self._head_bytes = True, True, 0

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, msg)

    def refuse(self, status: int, message: str) -> None:
        """Answer and close. In the native dialect's form: nothing is known yet of who asks."""
        if self.transport.is_closing():
            return
        failure = {"function": None, "index": None, "message": message, "value": None, "kind": "input"}
        body = json.dumps({"error": failure, "errors": [failure]}).encode()
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _start_head(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._start_clock()

    def _start_clock(self) -> None:
        self._deadline = self.loop.call_later(self.head_within_s, self._too_slow)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self.refuse(408, f"no complete request head within {self.head_within_s:g} s")
