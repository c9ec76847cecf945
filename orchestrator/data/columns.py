"""From the columns a source has to the ones the trainer and the rewards read."""

from collections.abc import Mapping

from orchestrator.data.errors import DataError, nearest

Row = dict[str, object]


def renaming(names: set[str], *, prompt: str, columns: Mapping[str, str], where: str) -> dict[str, str]:
    """Source column -> our column, for the named ones; the rest keep their name. `where` opens every message."""
    wanted = {"data.prompt": (prompt, "prompt")}
    wanted |= {f"data.columns.{ours}": (theirs, ours) for ours, theirs in columns.items()}
    renamed: dict[str, str] = {}
    for key, (theirs, ours) in wanted.items():
        if theirs not in names:
            raise DataError(f"{where}: {key} = {theirs!r}, but there is no such column; {nearest(theirs, names)}")
        if renamed.setdefault(theirs, ours) != ours:
            raise DataError(
                f"{where}: column {theirs!r} is asked for twice, as {renamed[theirs]!r} and as {ours!r}; "
                f"fix: remove one of them from data.prompt and data.columns"
            )
    final = [renamed.get(name, name) for name in sorted(names)]
    clash = next((ours for ours in renamed.values() if final.count(ours) > 1), None)
    if clash is not None:
        sources = sorted(name for name in names if renamed.get(name, name) == clash)
        raise DataError(
            f"{where}: columns {' and '.join(map(repr, sources))} would both be called {clash!r}; "
            f"fix: rename or remove one of them in the data, or change data.prompt or data.columns"
        )
    return renamed


def rename(row: Row, renamed: Mapping[str, str]) -> Row:
    return {renamed.get(name, name): value for name, value in row.items()}
