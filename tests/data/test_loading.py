import subprocess
import sys

import pytest

from orchestrator.data import DataError, describe, load_rows


def test_a_source_of_a_later_version_says_so() -> None:
    with pytest.raises(DataError, match="not available yet in this version"):
        load_rows("hub", split="train", rows=1, seed=0)


@pytest.mark.parametrize(
    ("source", "split", "rows", "message"),
    [
        ("arithmetc", "train", 1, "did you mean 'arithmetic'"),
        ("arithmetic", "held_out", 1, "did you mean 'heldout'"),
        ("arithmetic", "train", 0, "a positive number"),
    ],
)
def test_a_wrong_argument_is_named(source: str, split: str, rows: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_rows(source, split=split, rows=rows, seed=0)


def test_facts_of_text_and_of_conversations() -> None:
    text = load_rows("arithmetic", split="train", rows=800, seed=0)
    chat = load_rows("arithmetic", split="train", rows=800, seed=0, chat=True)
    facts = describe(text)
    assert (facts.columns, facts.rows, facts.longest_prompt_chars) == (("answer", "prompt"), 800, len("29+29="))
    assert facts.first_rows == tuple(text[:3])
    assert describe(chat).longest_prompt_chars == facts.longest_prompt_chars
    assert describe(chat).fingerprint != facts.fingerprint


def test_the_fingerprint_follows_the_rows_and_their_order() -> None:
    rows = load_rows("arithmetic", split="train", rows=10, seed=0)
    assert describe(rows).fingerprint == describe([dict(reversed(row.items())) for row in rows]).fingerprint
    assert describe(rows).fingerprint != describe(rows[::-1]).fingerprint


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, orchestrator.data; print({'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
