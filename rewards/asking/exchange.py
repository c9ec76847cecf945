"""One HTTP request and its answer, complete within a time, whatever the server does.

A timeout of requests bounds each read: a server that sends a byte now and then is waited for, for ever. So the exchange
runs in a thread of its own, and at the deadline its sockets are shut down, which ends that thread too.
"""

import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

CHUNK_BYTES = 65536
MAX_REPLY_BYTES = 64 * 2**20  # after decompression
GRACE_S = 0.2  # for the timeout of requests, which knows what it waited for, to speak first


class NoAnswerError(Exception):
    """No complete answer came: why, in words."""


class NoConnectionError(NoAnswerError):
    """Nobody could be asked, or the connection broke off: the next attempt may succeed."""


class LateError(NoAnswerError):
    """No complete answer within the time. The server may still be at work."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A complete answer, of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchange:
    """Connections to servers, kept between requests. Not for several threads at once."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url, token
        self._line = _Line(url, token)

    def ask(
        self, method: str, url: str, body: bytes | None, within_s: float, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Returns or raises at most GRACE_S after `within_s` seconds. Follows no redirect. Raises NoAnswerError."""
        if within_s <= 0:
            raise LateError("no time left to ask")
        box: queue.SimpleQueue[Reply | BaseException] = queue.SimpleQueue()
        line = self._line
        thread = threading.Thread(target=line.put, args=(box, method, url, body, within_s, headers), daemon=True)
        thread.start()
        try:
            found = box.get(timeout=within_s + GRACE_S)
        except BaseException as error:  # Ctrl-C as well: the thread must not stay
            line.cut()
            self._line = _Line(self._url, self._token)
            if isinstance(error, queue.Empty):
                raise LateError(f"no complete answer within {within_s:.3g} s") from None
            raise
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        self._line.session.close()


class _Line:
    """A session whose sockets can be shut down from another thread."""

    def __init__(self, url: str, token: str | None) -> None:
        self.session = requests.Session()
        # A proxy for the internet breaks loopback; many machines set one for every process.
        self.session.trust_env = not is_loopback(url)
        self.session.auth = _Bearer(token) if token else None
        self._sockets = _Sockets()
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, _Adapter(self._sockets))

    def put(
        self,
        box: "queue.SimpleQueue[Reply | BaseException]",
        method: str,
        url: str,
        body: bytes | None,
        within_s: float,
        headers: Mapping[str, str] | None,
    ) -> None:
        try:
            box.put(self._ask(method, url, body, within_s, headers))
        except BaseException as error:
            box.put(error)  # for the thread that waits

    def cut(self) -> None:
        self._sockets.cut()
        self.session.close()

    def _ask(
        self, method: str, url: str, body: bytes | None, within_s: float, headers: Mapping[str, str] | None
    ) -> Reply:
        ends = time.monotonic() + within_s
        try:
            with self.session.request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=within_s,
                stream=True,
                allow_redirects=False,  # a redirected POST would become a GET without its samples
            ) as response:
                return Reply(status=response.status_code, headers=response.headers, body=_read(response, ends))
        except (requests.ReadTimeout, urllib3.exceptions.ReadTimeoutError) as error:
            raise LateError(f"no complete answer within {within_s:.3g} s") from error
        except (ValueError, urllib3.exceptions.DecodeError) as error:  # no address; a Location or a body of nonsense
            raise NoAnswerError(f"no usable answer: {_words(error)}") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:  # those of requests are OSErrors
            raise NoConnectionError(f"no connection: {_words(error)}") from error


class _Sockets:
    """Those that were opened; kept until the next one, because a connection forgets its own before the body is read."""

    def __init__(self) -> None:
        self._connections: list[Any] = []
        self._kept: list[socket.socket] = []

    def opening(self, connection: Any) -> None:
        self._connections = [connection]

    def opened(self, found: socket.socket) -> None:
        self._kept = [found]

    def cut(self) -> None:
        for found in [*self._kept, *(connection.sock for connection in self._connections)]:
            if found is not None:
                with suppress(OSError):  # closed already
                    found.shutdown(socket.SHUT_RDWR)


class _Adapter(HTTPAdapter):
    """Tells `sockets` of each connection that it opens."""

    def __init__(self, sockets: _Sockets) -> None:
        self._sockets = sockets
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _watched(self._sockets)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _watched(self._sockets)
        return manager


def _watched(sockets: _Sockets) -> dict[str, Any]:
    """urllib3's classes, whose connections report to `sockets`."""

    def connect(connection: Any, base: Any) -> None:
        sockets.opening(connection)  # while TLS shakes hands, only the connection knows its socket
        base.connect(connection)
        sockets.opened(connection.sock)

    class Http(urllib3.connection.HTTPConnection):
        def connect(self) -> None:
            connect(self, urllib3.connection.HTTPConnection)

    class Https(urllib3.connection.HTTPSConnection):
        def connect(self) -> None:
            connect(self, urllib3.connection.HTTPSConnection)

    class HttpPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Http

    class HttpsPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Https

    return {"http": HttpPool, "https": HttpsPool}


class _Bearer(requests.auth.AuthBase):
    """Unlike a header, this is not replaced by an entry in ~/.netrc."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def is_loopback(url: str) -> bool:
    """False for what is no address too."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(response: requests.Response, ends: float) -> bytes:
    chunks, size = [], 0
    while chunk := response.raw.read1(CHUNK_BYTES, decode_content=True):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_REPLY_BYTES:
            raise NoAnswerError(f"no usable answer: it has more than {MAX_REPLY_BYTES} bytes")
        if time.monotonic() > ends:
            raise LateError(f"no complete answer in time ({size} bytes came)")
    return b"".join(chunks)


def _words(error: BaseException) -> str:
    """The innermost cause: `Connection refused` says more than the chain of classes around it."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error) or type(error).__name__
