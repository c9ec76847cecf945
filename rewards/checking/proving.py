"""`reward check`: loads one function in a worker, as a server would, and proves what can be proven without a model."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rewards.batch import gold_column
from rewards.calling.shapes import CONVENTIONS
from rewards.calling.signature import read_signature
from rewards.calling.targets import LoadError
from rewards.checking.behaviour import Behaviour
from rewards.checking.check_report import CheckReport, recipe, table
from rewards.checking.judging import Tried, failure_proof, gold_types, judged, load_proof
from rewards.checking.made_up import Row
from rewards.checking.proofs import Proof
from rewards.checking.rows import canned_rows, number_golds, with_text_golds
from rewards.checking.trial import Issue
from rewards.checking.trying import Trying
from rewards.contract import FunctionSpec, Granularity
from rewards.running.pool import Pool
from rewards.running.process import WorkerStartError

BUDGET_S = 300.0  # for everything; a person waits for it
START_S = 120.0


def check(spec: FunctionSpec, rows: Sequence[Row], *, group_size: int, timeout_s: float) -> CheckReport:
    """`rows`: the user's own, none of them if it is to be made-up ones only. Takes BUDGET_S at most."""
    return asyncio.run(_Check(spec, rows, group_size, timeout_s).run())


class _Check:
    def __init__(self, spec: FunctionSpec, rows: Sequence[Row], group_size: int, timeout_s: float) -> None:
        self.spec, self.rows, self.group_size = spec, rows, group_size
        self.pool = Pool([spec], workers=1, timeout_s=timeout_s, start_timeout_s=START_S)
        self.proofs: list[Proof] = []
        self.trying = Trying(self.pool, spec, group_size, self.proofs)
        self.told: list[Tried] = []
        self.granularity: Granularity | None = None

    async def run(self) -> CheckReport:
        summary = "not loaded"
        try:
            async with asyncio.timeout(BUDGET_S):
                began = time.perf_counter()
                await self.pool.start()
                summary = self._loaded(time.perf_counter() - began)
                await self._ask()
        except WorkerStartError as error:
            self.proofs.append(load_proof(str(error), self.spec))
        except TimeoutError:
            self.trying.add("time", "error", f"not done after {BUDGET_S:g} s", fix="--rows with fewer rows")
        finally:
            await self.pool.close()
        works = bool(self.told) and not any(proof.level == "error" for proof in self.proofs)
        return CheckReport(
            target=self.spec.target,
            summary=summary,
            proofs=tuple(self.proofs),
            scores=table(self.told),
            called=bool(self.told) or any(proof.level == "error" for proof in self.proofs),
            recipe=recipe(self.spec, self.granularity) if works else "",
        )

    def _loaded(self, seconds: float) -> str:
        info, where = self.pool.functions[0], ""
        with contextlib.suppress(LoadError):  # a source that cannot be read by name; it has been loaded all the same
            signature = read_signature(self.spec.target, self.spec.params, self.spec.shape)
            where = f" from {signature.path}:{signature.line}"
        self.trying.add("import", "ok", f"a worker has it after {seconds:.1f} s{where}")
        if info.self_test.passed:
            self.trying.add("self-test", "ok", info.self_test.detail)
        kind = "async" if info.is_async else "sync"
        return f"{CONVENTIONS[info.shape].says}; {kind}; called with one {info.granularity} at a time"

    def _gold_unknown(self) -> None:
        """Functions of other frameworks do not name the column of the gold answers: they get the one known as such."""
        columns = {name for row in self.rows for name in row.columns}
        if self.rows and self.pool.functions[0].shape not in ("trl", "post_process") and not gold_column(columns):
            self.trying.add(
                "gold",
                "warning",
                f"no column is known to hold the gold answers ({', '.join(sorted(columns)) or 'there is none'}): "
                "it gets None for each",
                fix="--column answer=NAME here, data.columns.answer=NAME in the recipe",
            )

    async def _ask(self) -> None:
        self._gold_unknown()
        real = await self.trying.real(self.rows) if self.rows else None
        if real is not None:
            self._judge(real)
            await self._gold_as_text(real)
        canned = await self.trying.canned(works=real is not None)
        if canned is not None:
            self._judge(canned, quiet=real is not None)
            if real is None:
                await self._gold_as_number(canned)
        best = real or canned
        if best is not None and self.spec.eval_key:
            await self._evaluation(best)
        if best is not None and not any(proof.level == "error" for proof in self.proofs):
            behaviour = Behaviour(self.pool, self.spec, best, self.group_size, self.trying.seconds)
            async for proof in behaviour.proofs():
                self.proofs.append(proof)
            self.granularity = behaviour.granularity

    def _judge(self, tried: Tried, *, quiet: bool = False) -> None:
        """`quiet`: only what is wrong; the rest has been said about real rows."""
        self.told.append(tried)
        found = judged(tried, self.pool.functions[0], self.spec)
        self.proofs += [proof for proof in found if not quiet or proof.level == "error"]

    async def _gold_as_text(self, real: Tried) -> None:
        numbers = number_golds(real.rows)
        if numbers:
            await self._swap(real, with_text_golds(real.rows), numbers)

    async def _gold_as_number(self, canned: Tried) -> None:
        if number_golds(canned.rows):
            return
        swapped = canned_rows(numbers=True)
        named = self.pool.functions[0].required_columns
        numbers = number_golds(swapped)
        await self._swap(canned, swapped, [pair for pair in numbers if pair[0] in named] or numbers)

    async def _swap(self, tried: Tried, rows: Sequence[Row], numbers: Sequence[tuple[str, Any]]) -> None:
        """Ask again with gold answers of the other type. One that then raises says so itself: no silent zero."""
        other = await self.trying.tried(rows, tried.what, real=tried.real)
        proof = gold_types(tried, other, numbers) if isinstance(other, Tried) else None
        if proof is not None:
            self.proofs.append(proof)

    async def _evaluation(self, tried: Tried) -> None:
        """Held-out rows count by another key, which must be there too."""
        batch = replace(tried.samples.batch, evaluation=True)
        failures = (await self.pool.score(batch))[self.spec.name].failures
        if failures:
            first = failures[0]
            issue = Issue(kind=first.kind, function=first.function, message=first.message, value=first.value or "")
            self.proofs.append(replace(failure_proof(issue, self.spec), name="eval key"))
        else:
            self.trying.add("eval key", "ok", f"held-out rows count by {self.spec.eval_key!r}")
