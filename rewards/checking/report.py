"""Reports of the two verbs: lines for a person, an object for machines."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rewards.checking.check_report import CheckReport
from rewards.checking.made_up import quoted
from rewards.checking.proofs import Proof
from rewards.probing.probe import ProbeReport
from rewards.probing.proofs import Examined

NAME_WIDTH, LEVEL_WIDTH = 14, 7
WIDEST = 56  # characters of a completion in the table


def proof_lines(proofs: Iterable[Proof]) -> Iterator[str]:
    """One line per proof; where there is one, the fix on a line of its own. What others said stays indented."""
    margin = f"  {'':<{LEVEL_WIDTH}}  {'':<{NAME_WIDTH}} "
    for proof in proofs:
        where = f" [{proof.sample}]" if proof.sample else ""
        value = f"; value: {proof.value}" if proof.value else ""
        said = f"{proof.message}{where}{value}".replace("\n", f"\n{margin}")
        yield f"  {proof.level:<{LEVEL_WIDTH}}  {proof.name:<{NAME_WIDTH}} {said}"
        if proof.fix:
            yield f"{margin}fix: {proof.fix}"


def probe_text(report: ProbeReport) -> str:
    lines = [f"reward server at {report.url}"]
    for about in dict.fromkeys(proof.about for proof in report.proofs):
        lines += ["", *([about] if about else [])]
        lines += proof_lines(proof for proof in report.proofs if proof.about == about)
        lines += [line for one in report.honoured if one.route.title == about for line in _pair_table(one)]
    names = ", ".join(dict.fromkeys(one.route.dialect.name for one in report.honoured))
    lines += ["", f"honoured: {names or 'no dialect'}; {_count(report.proofs)}"]
    return "\n".join(lines)


def probe_json(report: ProbeReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "exit_code": report.exit_code,
        "honoured": [
            {
                "dialect": one.route.dialect.name,
                "url": one.route.url,
                "told_apart": one.told_apart,
                "pairs": [asdict(form) for form in one.forms],
            }
            for one in report.honoured
        ],
        "proofs": [asdict(proof) for proof in report.proofs],
    }


def check_text(report: CheckReport) -> str:
    lines = [f"{report.target}: {report.summary}", "", *proof_lines(report.proofs)]
    if report.scores:
        texts = [_fitted(one.completion) for one in report.scores]
        width = max(map(len, texts))
        lines += ["", f"  {'completion':<{width}}  score   row"]
        lines += [
            f"  {text:<{width}}  {_shown(one.score):<6}  {one.row}{one.logged}"
            for text, one in zip(texts, report.scores, strict=True)
        ]
    if report.recipe:
        lines += ["", "for a recipe:", "", report.recipe]
    nothing = "" if report.called else "; but nothing was proven: there was no row to call the function with"
    return "\n".join([*lines, "", _count(report.proofs) + nothing])


def check_json(report: CheckReport) -> dict[str, Any]:
    return {**asdict(report), "exit_code": report.exit_code}


def _pair_table(examined: Examined) -> Iterator[str]:
    width = max(len(quoted(form.right)) for form in examined.forms)
    yield f"    {'right completion':<{width}}  right   wrong"
    for form in examined.forms:
        scores = "no score" if form.scores is None else f"{form.scores[0]:<6g}  {form.scores[1]:g}"
        yield f"    {quoted(form.right):<{width}}  {scores}"


def _count(proofs: Sequence[Proof]) -> str:
    errors, warnings = (sum(proof.level == level for proof in proofs) for level in ("error", "warning"))
    return f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"


def _fitted(text: str) -> str:
    """A long one without its middle: the answer stands at the end."""
    shown = repr(text)
    return shown if len(shown) <= WIDEST else f"{shown[: WIDEST // 2 - 2]}...{shown[1 - WIDEST // 2 :]}"


def _shown(score: float | None) -> str:
    return "None" if score is None else f"{score:g}"
