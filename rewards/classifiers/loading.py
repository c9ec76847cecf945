"""Loading a sequence classifier, and refusing one whose scores would mean nothing.

torch and transformers are loaded by the functions that need them, so that importing this module costs nothing.
"""

import importlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from rewards.classifiers.classifier import Classifier, Options
from rewards.contract import PrepareError

NO_LIMIT = 10**9  # transformers writes 1e30 where a tokenizer names no limit


@lru_cache(maxsize=8)
def load_classifier(options: Options) -> Classifier:
    """Kept for the life of the process. Raises PrepareError: what is wrong with the model, and what to do."""
    source = _source(options.model)
    device = _device(options.device)
    torch: Any = importlib.import_module("torch")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    transformers: Any = importlib.import_module("transformers")
    where = {"revision": options.revision, "trust_remote_code": False}
    dtype = "auto" if options.dtype == "auto" else getattr(torch, options.dtype)
    kind = transformers.AutoModelForSequenceClassification
    try:
        config = transformers.AutoConfig.from_pretrained(source, **where)
        output = _output(options, config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **where, truncation_side="left")
        model, loading = kind.from_pretrained(
            source, **where, config=config, dtype=dtype, use_safetensors=True, output_loading_info=True
        )
        model = model.eval().to(device)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
        raise PrepareError(f"the reward model {options.model} cannot be loaded: {error}") from error
    _check_parts(options, loading, config, tokenizer)
    config = model.config.get_text_config()
    config.use_cache = False
    pad_id = config.pad_token_id if config.pad_token_id is not None and config.pad_token_id >= 0 else None
    limit = _limit(options, config, tokenizer)
    return Classifier(options=options, model=model, tokenizer=tokenizer, limit=limit, output=output, pad_id=pad_id)


def _source(model: str) -> str:
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder)
    if model.startswith(("/", ".", "~")) or model.count("/") > 1:
        raise PrepareError(f"there is no folder {folder.absolute()}: params.model is a folder or a hub id (owner/name)")
    return model


def _device(name: str) -> Any:
    torch: Any = importlib.import_module("torch")
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PrepareError(f"params.device {name!r} cannot be used here: {words}; `cpu` always can") from error
    return device


def _output(options: Options, config: Any) -> int:
    """The index of the score."""
    count, index = config.num_labels, options.label_index
    if index is None and count != 1:
        labels = ", ".join(f"{i}: {label}" for i, label in sorted(config.id2label.items()))
        raise PrepareError(f"{options.model} has {count} outputs ({labels}): say which one by params.label_index")
    if index is not None and index >= count:
        raise PrepareError(f"params.label_index is {index}, but {options.model} has {count} outputs (counted from 0)")
    return index or 0


def _check_parts(options: Options, loading: Any, config: Any, tokenizer: Any) -> None:
    """transformers makes up what a folder lacks: random numbers for a missing head, an empty tokenizer for none."""
    lacking = sorted(loading["missing_keys"]) + sorted(str(key) for key in loading["mismatched_keys"])
    if lacking:
        raise PrepareError(
            f"{options.model} is not a trained classifier: the checkpoint lacks {', '.join(lacking[:4])}, "
            "which would be random numbers; give a reward model"
        )
    if not tokenizer("2 + 2 = 4", add_special_tokens=False)["input_ids"]:
        raise PrepareError(f"{options.model} has no tokenizer, or an empty one: save the model's own beside it")
    vocabulary = config.get_text_config().vocab_size
    if len(tokenizer) > vocabulary:
        raise PrepareError(
            f"the tokenizer of {options.model} knows {len(tokenizer)} tokens, its model {vocabulary}: not a pair"
        )
    if options.template == "chat" and not tokenizer.chat_template:
        raise PrepareError(f"params.template is chat, but the tokenizer of {options.model} has no chat template")


def _limit(options: Options, config: Any, tokenizer: Any) -> int:
    positions = getattr(config, "max_position_embeddings", None) or NO_LIMIT
    most = int(min(positions, tokenizer.model_max_length, NO_LIMIT))
    if options.max_length is not None and options.max_length > most:
        raise PrepareError(f"params.max_length is {options.max_length}, but {options.model} takes {most} tokens")
    return options.max_length or most
