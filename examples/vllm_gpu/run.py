"""`python examples/vllm_gpu/run.py vllm|colocate|lora|files [--folder gsm8k] [override ...]`: fetch, train, judge.

Everything after the recipe's name is handed to orchestrate as it is. Exit code 0 = PASS.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from prepare import is_prepared, prepare
from verdict import as_json, judge

RECIPES = {
    "vllm": "grpo_gsm8k_vllm",
    "colocate": "grpo_gsm8k_colocate",
    "lora": "grpo_gsm8k_lora",
    "files": "gsm8k",
}
CONFIG_DIR = Path(__file__).resolve().parent / "recipes"


def orchestrate(name: str, folder: Path, overrides: list[str]) -> int:
    """Its exit code; what it prints goes where ours goes."""
    where = [
        f"model.name={folder / 'model'}",
        f"data.path={folder / 'train.jsonl'}",
        f"data.heldout_path={folder / 'heldout.jsonl'}",
    ]
    words = ["--config-dir", str(CONFIG_DIR), f"+experiment={name}", *where, *overrides]
    return subprocess.run([sys.executable, "-P", "-m", "orchestrator", *words]).returncode


def newest_run(name: str) -> Path | None:
    latest = Path("runs", name, "latest")
    return latest.resolve() if latest.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--folder", type=Path, default=Path("gsm8k"))
    args, overrides = parser.parse_known_args()
    name = RECIPES[args.recipe]
    if not is_prepared(args.folder):
        print(f"fetching the model and the data into {args.folder} ...", flush=True)
        prepare(args.folder)
    before = newest_run(name)
    code = orchestrate(name, args.folder, overrides)
    run_dir = newest_run(name)
    run_dir = None if run_dir == before else run_dir
    checks = judge(run_dir, code)
    for check in checks:
        print(f"{'ok  ' if check.holds else 'FAIL'} {check.name}: {check.figures}")
    said = as_json(name, run_dir, checks)
    path = args.folder / f"verdict-{args.recipe}.json"
    path.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    print(f"{said['verdict']}: {name}; please send {path}")
    return 0 if said["verdict"] == "PASS" else 1


if __name__ == "__main__":
    sys.exit(main())
