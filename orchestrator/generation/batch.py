"""Everything that is being generated: jobs join and leave between two tokens."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch

from orchestrator.generation import forward, padding
from orchestrator.generation.jobs import Flight, Job, take_off
from orchestrator.generation.lane import Lane


class Batch:
    """Jobs under way, their rows in lanes of similar length. A turn is `advance` or `refill`, then `admit` and `draw`.

    A pass of the model reads the prompts of new jobs, each once for all its choices, or one token of each row of a
    lane. Every pass keeps the bound on padding of `padding.may_share`. A row that ends leaves before the next pass.

    A row has a random stream of its own, but the last bits of its logits depend on the shapes of the matrices that it
    is computed in, and so on its company. The same jobs, admitted at the same turns, give the same bits.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lanes: list[Lane] = []
        self._flights: list[Flight] = []

    @property
    def num_rows(self) -> int:
        """Rows that have not ended."""
        return sum(len(lane.rows) for lane in self._lanes)

    def admit(self, jobs: Sequence[Job]) -> list[Flight]:
        """Read the prompts of new jobs. When that raises, the others under way go on as before."""
        flights = [take_off(job) for job in jobs]
        lanes = []
        for group in padding.groups([len(job.prompt) for job in jobs]):
            context, logits = forward.prefill(self._model, [jobs[index].prompt for index in group])
            copies = [(place, row) for place, index in enumerate(group) for row in flights[index].rows]
            for part in padding.groups([len(row.job.prompt) for _, row in copies]):
                places = torch.tensor([copies[index][0] for index in part])
                lane = Lane([copies[index][1] for index in part], context.copied(places))
                lane.logits = logits[places]
                lanes.append(lane)
        self._lanes += lanes
        self._flights += flights
        return flights

    def draw(self) -> list[Flight]:
        """Draw the next token of every row; returns the jobs that are complete, which are no longer under way.

        Raises FloatingPointError when the model yields NaN.
        """
        ended = [lane.draw() for lane in self._lanes]
        if not any(ended):
            return []
        self._lanes = [lane for lane in self._lanes if lane.rows]
        done = [flight for flight in self._flights if flight.done]
        self._flights = [flight for flight in self._flights if not flight.done]
        return done

    def advance(self) -> None:
        """Have the model read the tokens drawn last."""
        self._lanes = _arranged(self._lanes)
        for lane in self._lanes:
            lane.advance(self._model)

    def refill(self) -> None:
        """Have the model read all tokens of every row again, since its weights changed."""
        rows = [row for lane in self._lanes for row in lane.rows]
        sequences = [row.sequence() for row in rows]
        self._lanes = []
        for group in padding.groups([len(sequence) for sequence in sequences]):
            context, logits = forward.prefill(self._model, [sequences[index] for index in group])
            lane = Lane([rows[index] for index in group], context)
            lane.logits = logits
            self._lanes.append(lane)

    def clear(self) -> list[Flight]:
        """Drop everything; returns the jobs that were under way, with what they have."""
        flights, self._flights, self._lanes = self._flights, [], []
        return flights


def _arranged(lanes: list[Lane]) -> list[Lane]:
    """The same rows in as few lanes as the bound on padding allows to join; rows that left may have broken it."""
    lanes = [part for lane in lanes for part in ([lane] if lane.may_join() else lane.split())]
    while pair := next((pair for pair in combinations(lanes, 2) if pair[0].may_join(pair[1])), None):
        large, small = sorted(pair, key=lambda lane: -len(lane.rows))
        large.join(small)
        lanes.remove(small)
    return lanes
