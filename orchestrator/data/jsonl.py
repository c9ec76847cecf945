"""A user's own rows: a file with one JSON object per line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.data.columns import Row, rename, renaming
from orchestrator.data.errors import ROWS_KEYS, DataError
from orchestrator.data.sampling import draw


def jsonl_rows(
    path: Path, *, rows: int | None, seed: int, prompt: str, columns: Mapping[str, str], key: str, split: str
) -> list[Row]:
    """Every row in the order of the file, or `rows` of them drawn with `seed`, none twice.

    `key` is the recipe's name for this path. Raises DataError, naming file and line, unless every line holds an object
    with the same columns, of the same kinds, and a prompt that is text or a list of messages.
    """
    numbered = list(_objects(path, key))
    if not numbered:
        raise DataError(f"{path}: no rows in it; fix: one JSON object per line, or another {key}")
    first_line, first = numbered[0]
    renamed = renaming(set(first), prompt=prompt, columns=columns, where=f"{path}:{first_line}")
    for line, row in numbered:
        where = f"{path}:{line}"
        _same_columns(row, first, where=where, first_line=first_line)
        _same_kinds(row, first, where=where, first_line=first_line)
        _prompt_is_usable(row[prompt], where=f"{where}: prompt column {prompt!r}")
    if rows is not None and rows > len(numbered):
        raise DataError(
            f"{ROWS_KEYS[split]} = {rows}, but {path} has {len(numbered)}; "
            f"fix: set {ROWS_KEYS[split]} to at most {len(numbered)}"
            + (", or to null for all" if split == "train" else "")
        )
    chosen = numbered if rows is None else draw(numbered, rows, seed=seed, key=lambda item: str(item[0]))
    return [rename(row, renamed) for _, row in chosen]


def _objects(path: Path, key: str) -> Iterator[tuple[int, Row]]:
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise DataError(f"{key} = {str(path)!r} cannot be read: {error.strerror}; fix: set {key}") from error
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            value = json.loads(raw.decode())
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON: {error}; fix: one JSON object per line") from error
        if not isinstance(value, dict):
            raise DataError(
                f"{path}:{number}: a JSON {_kind(value)}, where an object is needed; "
                f'fix: write rows as {{"prompt": ..., "answer": ...}}'
            )
        yield number, value


def _same_columns(row: Row, first: Row, *, where: str, first_line: int) -> None:
    if row.keys() != first.keys():
        missing, extra = sorted(first.keys() - row.keys()), sorted(row.keys() - first.keys())
        raise DataError(
            f"{where}: columns {sorted(row)}, but line {first_line} has {sorted(first)} "
            f"(missing {missing}, extra {extra}); fix: give every row the same columns, null where there is no value"
        )


def _same_kinds(row: Row, first: Row, *, where: str, first_line: int) -> None:
    for name, value in row.items():
        kinds = _kind(value), _kind(first[name])
        if kinds[0] != kinds[1] and "null" not in kinds:
            raise DataError(
                f"{where}: column {name!r} is a {kinds[0]} here and a {kinds[1]} on line {first_line}; "
                f"fix: write it the same way in every row"
            )


def _prompt_is_usable(prompt: object, *, where: str) -> None:
    fix = 'fix: non-empty text, or a list of {"role": ..., "content": ...}'
    if isinstance(prompt, str) and prompt:
        return
    if not isinstance(prompt, list) or not prompt:
        raise DataError(f"{where} is {prompt!r}; {fix}")
    for message in prompt:
        fields = message if isinstance(message, dict) else {}
        if not isinstance(fields.get("role"), str) or not isinstance(fields.get("content"), str):
            raise DataError(f"{where} has the message {message!r}; {fix}")


def _kind(value: object) -> str:
    # bool before number: in Python True is an int, in the JSON and Arrow that follow it is not.
    names = ((bool, "boolean"), ((int, float), "number"), (str, "string"), (list, "list"), (dict, "object"))
    return next((name for kinds, name in names if isinstance(value, kinds)), "null")
