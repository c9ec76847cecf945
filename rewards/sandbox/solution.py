"""The inmate that holds a completion's code: run as a script, or as a module whose objects the judge asks for.

Nothing here is trusted once that code has begun: it may change all of this, and can then still only send plain data.
"""

import atexit
import builtins
import os
import sys
import threading
from types import ModuleType
from typing import Any

from rewards.sandbox import arrays
from rewards.sandbox.channel import Channel
from rewards.sandbox.codec import CALLBACK, MUTABLE
from rewards.sandbox.objects import Objects
from rewards.sandbox.operations import OPERATIONS

AGAIN = "_sandbox_again"


def run_script(source: int, stdin: int, stdout: int) -> int:
    """Run the code as `__main__`, with these descriptors (files in memory) for its input and output."""
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    try:
        _run(_read(source), "__main__")
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code & 0xFF


def serve(source: int, socket: int) -> int:
    """Run the code as a module, then answer the judge until it has no more questions."""
    server = _Server(Channel(socket))
    try:
        server.namespace = vars(_run(_read(source), "solution"))
        server.channel.send({"value": None})
    except BaseException as error:
        server.channel.send(server.raised(error))
    while (message := server.channel.receive()) is not None:
        server.channel.send(server.answer(message))
    return 0


def _read(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


def _run(source: bytes, name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    sys.argv[:] = ["solution.py"]
    exec(compile(source, "solution.py", "exec"), vars(module))  # noqa: S102  what this process is for
    return module


class _Server:
    """Answers questions about the names that the code defines and the objects that came of them."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.namespace: dict[str, Any] = {}
        self.objects = Objects(self.call_back)

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """{"value", "changed"}: the result, and the arguments that were changed in place. Or raised()."""
        try:
            if message["operation"] == "get":
                return {"value": self.objects.encode(self.namespace[message["name"]])}
            wires = {**{str(n): w for n, w in enumerate(message["arguments"])}, **message["keywords"]}
            handed = {place: self.objects.decode(wire) for place, wire in wires.items()}
            keywords = {name: handed[name] for name in message["keywords"]}
            arguments = [handed[str(n)] for n in range(len(message["arguments"]))]
            value = self.objects.encode(OPERATIONS[message["operation"]](*arguments, **keywords))
            after = {place: self.objects.encode(a) for place, a in handed.items() if _is_mutable(a)}
            return {"value": value, "changed": {place: w for place, w in after.items() if w != wires[place]}}
        except BaseException as error:
            return self.raised(error)

    def raised(self, error: BaseException) -> dict[str, Any]:
        """{"again"}: one that came from the tests. Else {"raised"}."""
        again = vars(error).get(AGAIN)
        return {"raised": self.objects.error(error)} if again is None else {"again": again}

    def call_back(self, number: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function of the tests': the judge runs it, and may ask us for something meanwhile."""
        encode = self.objects.encode
        named = {name: encode(a) for name, a in keywords.items()}
        self.channel.send({CALLBACK: number, "arguments": [encode(a) for a in arguments], "keywords": named})
        while (message := self.channel.receive()) is not None and "operation" in message:
            self.channel.send(self.answer(message))
        if message is None:
            os._exit(0)
        if "raised" in message:
            kind, text, again = message["raised"]
            error = getattr(builtins, kind)(text) if kind != "StopIteration" else StopIteration()
            setattr(error, AGAIN, again)
            raise error
        return self.objects.decode(message["value"])


def _is_mutable(value: Any) -> bool:
    return type(value) in MUTABLE or arrays.pack(value) is not None
