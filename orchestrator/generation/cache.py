"""A KV cache whose rows come and go: the rows end in the same column, and a token is written where it stays."""

from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

# Columns (tokens) allocated beyond those in use: rows move to a larger room once in so many tokens. Few, as attention
# is faster over memory without gaps: with 64, generating from the shipped model took 12 % longer, with none 6 %.
SPARE_COLUMNS = 8


class _Layer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer. `keys` and `values` show the used part of two larger rooms.

    Shapes are [rows, heads, columns, head size]. A row that is shorter than the longest starts later; what lies before
    it is finite and must be masked. Like any DynamicLayer it never forgets, so a sliding window is the mask's affair.
    """

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append tokens to every row; returns all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._rooms = [key_states, value_states]
            self._rows, self._start, self._end = key_states.shape[0], 0, key_states.shape[2]
        else:
            end = self._end + key_states.shape[2]
            if end > self._rooms[0].shape[2]:
                self._move(len(self._rooms[0]), self._end - self._start)
                end = self._end + key_states.shape[2]
            for room, states in zip(self._rooms, (key_states, value_states), strict=True):
                room[: self._rows, :, self._end : end] = states
            self._end = end
        self._show()
        return self.keys, self.values

    def copied(self, rows: Tensor, columns: int) -> "_Layer":
        """A layer of its own with the given rows (indices may repeat), and the last `columns` columns of each."""
        layer = _Layer()
        layer.lazy_initialization(self.keys, self.values)
        layer._rooms = [_room(self.keys, len(rows), columns), _room(self.values, len(rows), columns)]
        layer._rows, layer._start, layer._end = 0, columns, columns
        layer.join(self, rows, columns)
        return layer

    def join(self, other: "_Layer", rows: Tensor, columns: int) -> None:
        """Append rows of another layer, the last `columns` columns of each."""
        total, width, room_for = self._rows + len(rows), max(self._end - self._start, columns), len(self._rooms[0])
        if total > room_for or width > self._end:
            # By half, so that a stream of single rows does not move everything each time.
            self._move(max(total, room_for * 3 // 2) if total > room_for else room_for, width)
        for room, states in zip(self._rooms, (other.keys, other.values), strict=True):
            room[self._rows : total, :, self._end - columns : self._end] = states[rows, :, states.shape[2] - columns :]
        self._rows, self._start = total, self._end - width
        self._show()

    def settle(self, holes: Tensor, fillers: Tensor, rows: int, columns: int) -> None:
        """Copy the rows `fillers` over the rows `holes`, then keep the first `rows`, the last `columns` of each."""
        for room in self._rooms:
            room[holes, :, self._start : self._end] = room[fillers, :, self._start : self._end]
        self._rows, self._start = rows, self._end - columns
        self._show()

    def _move(self, rows: int, columns: int) -> None:
        """To rooms for `rows` rows, with at least `columns` columns up to the last one used."""
        rooms = [_room(room, rows, columns) for room in self._rooms]
        start = columns - (self._end - self._start)
        for room, old in zip(rooms, self._rooms, strict=True):
            room[: self._rows, :, start:columns] = old[: self._rows, :, self._start : self._end]
        self._rooms, self._start, self._end = rooms, start, columns

    def _show(self) -> None:
        self.keys, self.values = (room[: self._rows, :, self._start : self._end] for room in self._rooms)


def _room(like: Tensor, rows: int, columns: int) -> Tensor:
    # Zeros, not whatever memory holds: a masked NaN is still NaN after attention.
    return like.new_zeros(rows, like.shape[1], columns + SPARE_COLUMNS, like.shape[3])


class RowCache(Cache):  # type: ignore[misc]
    """What a transformers model is given as `past_key_values`; positions and the mask are the caller's affair."""

    def __init__(self, layers: list[_Layer] | None = None) -> None:
        if layers is None:
            super().__init__(layer_class_to_replicate=_Layer)
        else:
            super().__init__(layers=layers)

    def copied(self, rows: Tensor, columns: int) -> "RowCache":
        """A cache of its own with the given rows (indices may repeat), and the last `columns` columns of each."""
        return RowCache([layer.copied(rows, columns) for layer in self.layers])

    def join(self, other: "RowCache") -> None:
        """Append all rows of another cache; every row's last token stays in the last column."""
        rows, columns = torch.arange(other.layers[0].keys.shape[0]), other.get_seq_length()
        for layer, joining in zip(self.layers, other.layers, strict=True):
            layer.join(joining, rows, columns)

    def keep(self, kept: Tensor, columns: int) -> None:
        """Keep the last `columns` columns of the rows `kept`, in that order.

        `kept` must leave a row in its place or move it to an earlier one's that is not kept (see `survivors`), so that
        only as many rows are copied as were dropped.
        """
        places = torch.arange(len(kept))
        moved = (kept != places).nonzero()[:, 0]
        for layer in self.layers:
            layer.settle(moved, kept[moved], len(kept), columns)


def survivors(staying: Tensor) -> Tensor:
    """Indices of the rows that stay ([rows] bool), the last ones in the places of those that do not."""
    count = int(staying.sum())
    kept = torch.arange(count)
    kept[~staying[:count]] = staying[count:].nonzero()[:, 0] + count
    return kept
