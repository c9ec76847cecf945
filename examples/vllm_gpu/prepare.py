"""`python examples/vllm_gpu/prepare.py [--folder gsm8k]`: the model and the data of these recipes, once.

Fetches Qwen/Qwen2.5-0.5B-Instruct (1 GB) and openai/gsm8k from the Hugging Face hub into the folder: model/,
train.jsonl, heldout.jsonl. What is there already is left alone.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
DATA = "openai/gsm8k"
SPLITS = {"train.jsonl": "train", "heldout.jsonl": "test"}
INSTRUCTION = "\nThink step by step, and put your final answer into \\boxed{}."
GOLD_MARK = "####"
"""GSM8K writes the worked solution, this mark, and the number."""


def as_row(example: Mapping[str, str]) -> dict[str, str]:
    """GSM8K's question and answer -> prompt and answer. Raises ValueError where the gold number is missing."""
    _, mark, gold = example["answer"].rpartition(GOLD_MARK)
    if not mark or not gold.strip():
        raise ValueError(f"no number after {GOLD_MARK} in the answer to {example['question']!r:.80}")
    return {"prompt": example["question"] + INSTRUCTION, "answer": gold.strip().replace(",", "")}


def write_rows(path: Path, examples: Iterable[Mapping[str, str]]) -> None:
    """The file appears when it is whole."""
    scratch = path.with_suffix(".part")
    scratch.write_text("".join(json.dumps(as_row(example)) + "\n" for example in examples), encoding="utf-8")
    scratch.replace(path)


def prepare(folder: Path) -> None:
    """Fetch what is missing. Raises what huggingface_hub and datasets raise without a network."""
    # Here: whoever only looks at the rows needs neither.
    from datasets import load_dataset
    from huggingface_hub import snapshot_download

    folder.mkdir(parents=True, exist_ok=True)
    # Asked every time: a download that was cut off goes on, and a whole one is seen to be whole.
    snapshot_download(MODEL, local_dir=folder / "model")
    for name, split in SPLITS.items():
        if not (folder / name).is_file():
            write_rows(folder / name, load_dataset(DATA, "main", split=split))


def is_prepared(folder: Path) -> bool:
    """The data is written after the model is whole."""
    return (folder / "model" / "config.json").is_file() and all((folder / name).is_file() for name in SPLITS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("gsm8k"))
    folder = parser.parse_args().folder
    prepare(folder)
    print(f"prepared: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
