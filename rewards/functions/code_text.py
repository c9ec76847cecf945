"""Where the program is in a completion, and what a row's tests say."""

import json
from dataclasses import dataclass
from typing import Any

from rewards.contract import short_repr

FENCE = "```"
PYTHON_TAGS = ("python", "python3", "py")


def program(completion: str) -> str:
    """The last fenced block tagged as Python, else the last untagged one, else, without any fence, the whole text.

    Only what follows the last `</think>` counts; nothing does when a `<think>` never ended. A fence that never ends
    reaches to the end of the text.
    """
    _, ended, answer = completion.rpartition("</think>")
    if not ended and "<think>" in completion:
        return ""
    blocks = list(_blocks(answer))
    if not blocks:
        return answer
    tagged = [text for tag, text in blocks if tag in PYTHON_TAGS]
    untagged = [text for tag, text in blocks if not tag]
    return (tagged or untagged or [""])[-1]


def _blocks(text: str) -> list[tuple[str, str]]:
    """(tag, content) of each fenced block."""
    blocks: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.replace("\r\n", "\n").split("\n"):  # splitlines() would also cut at a form feed in a string
        fence = line.strip()
        if inside and fence == FENCE:
            inside = False
        elif inside:
            blocks[-1][1].append(line)
        elif fence.startswith(FENCE):
            inside = True
            blocks.append((fence.removeprefix(FENCE).strip().lower().partition(" ")[0], []))
    return [(tag, "\n".join(lines)) for tag, lines in blocks]


@dataclass(frozen=True)
class Exchange:
    """One test of a script: what it reads, and what it has to print."""

    given: str
    expected: str

    def holds(self, printed: bytes) -> bool:
        """Line by line; white space at the ends of lines and empty lines at the end do not count."""
        return _lines(printed.decode(errors="replace")) == _lines(self.expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


@dataclass(frozen=True)
class Asserts:
    """Tests in Python: one text, or one per test."""

    source: str | list[str]


def read_tests(tests: object) -> list[Exchange] | Asserts:
    """What a row's tests mean. Raises ValueError for anything else, and for no tests."""
    if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{"):
        try:
            tests = json.loads(tests)
        except ValueError:
            pass  # Python that begins with a bracket
    if isinstance(tests, dict):
        return _apps(tests)
    if isinstance(tests, str) and tests.strip():
        return Asserts(tests)
    if isinstance(tests, list) and tests:
        if all(isinstance(test, str) for test in tests):
            return Asserts(tests)
        if all(isinstance(test, dict) for test in tests):
            return [_exchange(test) for test in tests]
    raise ValueError(
        f"the tests {short_repr(tests)} are not Python source, a list of assert strings, or a list of "
        '{"input": ..., "output": ...}'
    )


def _apps(tests: dict[str, Any]) -> list[Exchange]:
    """{"inputs": [...], "outputs": [...]}, as APPS has it."""
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise ValueError(f"the tests {short_repr(tests)} have no `inputs` and `outputs` of one length")
    if tests.get("fn_name"):
        raise ValueError(f"tests that call fn_name ({tests['fn_name']}) are not known here; write them as asserts")
    return [_exchange({"input": i, "output": o}) for i, o in zip(inputs, outputs, strict=True)]


def _exchange(test: dict[str, Any]) -> Exchange:
    given, expected = test.get("input"), test.get("output")
    if test.get("testtype", "stdin") != "stdin" or not isinstance(given, str) or not isinstance(expected, str):
        raise ValueError(f"the test {short_repr(test)} has no `input` and `output` strings for stdin and stdout")
    return Exchange(given, expected)
