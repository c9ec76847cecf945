"""The inmate that holds a completion's code: run as a script, or as a module whose objects the judge asks for.

Nothing here is trusted once that code has begun: it may change all of this, and can then still only send plain data.
"""

import atexit
import builtins
import operator
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rewards.sandbox.codec import CALLBACK, MUTABLE, OBJECT, Channel, decode, encode

OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "getattr": getattr,
    "setattr": setattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "len": len,
    "iter": iter,
    "next": next,
    "str": str,
    "repr": repr,
    "isinstance": isinstance,
    "equal": lambda one, other: bool(one == other),
}


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
        server.channel.send(_raised(error))
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
    """The names that the code defines, and the objects that the judge knows by number."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.namespace: dict[str, Any] = {}
        self.objects: dict[int, Any] = {}

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """{"value", "changed"}: the result, and the positional arguments that were changed in place. Or {"raised"}."""
        try:
            if message["operation"] == "get":
                return {"value": self.encode(self.namespace[message["name"]])}
            arguments = [self.decode(wire) for wire in message["arguments"]]
            keywords = {name: self.decode(wire) for name, wire in message["keywords"].items()}
            value = self.encode(OPERATIONS[message["operation"]](*arguments, **keywords))
            after = {n: self.encode(a) for n, a in enumerate(arguments) if isinstance(a, MUTABLE)}
            return {"value": value, "changed": {n: w for n, w in after.items() if w != message["arguments"][n]}}
        except BaseException as error:
            return _raised(error)

    def encode(self, value: Any) -> Any:
        return encode(value, self._keep)

    def decode(self, wire: Any) -> Any:
        return decode(wire, lambda tag, number: self.objects[number] if tag == OBJECT else self._callback(number))

    def _keep(self, value: Any) -> list[Any]:
        self.objects[id(value)] = value
        return [OBJECT, id(value)]

    def _callback(self, number: int) -> Callable[..., Any]:
        """A function of the tests': the judge runs it, and may ask us for something meanwhile."""

        def callback(*args: Any) -> Any:
            self.channel.send({CALLBACK: number, "arguments": [self.encode(a) for a in args]})
            while (message := self.channel.receive()) is not None and "operation" in message:
                self.channel.send(self.answer(message))
            if message is None:
                os._exit(0)
            if "raised" in message:
                kind, text = message["raised"]
                raise getattr(builtins, kind, Exception)(text)
            return self.decode(message["value"])

        return callback


def _raised(error: BaseException) -> dict[str, Any]:
    return {"raised": [type(error).__name__, str(error)]}
