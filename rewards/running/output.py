"""What goes to stderr, without ever waiting for its reader: a full pipe that nobody empties must not stop a server."""

import atexit
import os
import threading
import time

KEPT_BYTES = 4 * 2**20  # while the reader is slow; more is dropped and counted
LAST_WORDS_S = 1.0  # at the end of the process
STDERR = 2


class Output:
    """A file descriptor with a thread that writes to it. Lines of several writers keep their order."""

    def __init__(self, fd: int, kept_bytes: int = KEPT_BYTES) -> None:
        self._fd, self._kept_bytes = fd, kept_bytes
        self._changed = threading.Condition()
        self._pending = bytearray()
        self._dropped = 0
        self._writing = False
        self._thread: threading.Thread | None = None

    def write(self, data: bytes) -> None:
        """Takes all of it, or counts all of it as dropped."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._drain, name="stderr", daemon=True)
                self._thread.start()
            if len(self._pending) + len(data) > self._kept_bytes:
                self._dropped += len(data)
            else:
                self._pending += data
            self._changed.notify_all()

    def flush(self, within_s: float) -> None:
        """Wait until everything is written, or the time is up."""
        deadline = time.monotonic() + within_s
        with self._changed:
            while (self._pending or self._dropped or self._writing) and (left_s := deadline - time.monotonic()) > 0:
                self._changed.wait(left_s)

    def _drain(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                while not (self._pending or self._dropped):
                    self._changed.wait()  # no deadline: a daemon thread has nothing else to do
                data, self._pending = self._pending, bytearray()
                dropped, self._dropped = self._dropped, 0
                self._writing = True
            if dropped:
                cut = b"" if data.endswith(b"\n") or not data else b"\n"
                data += cut + b"rewards: %d bytes of output were dropped: stderr was not read in time\n" % dropped
            self._write_all(data)

    def _write_all(self, data: bytearray) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # somebody made the descriptor non-blocking
                time.sleep(0.01)
            except OSError:  # closed, or its reader is gone: there is nobody to tell
                return


stderr = Output(STDERR)
atexit.register(stderr.flush, LAST_WORDS_S)
