"""What the tokenizer's files say, without a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from orchestrator.facts.json_files import object_if_there

PROMPT_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"),
    *("chat_template.jinja", "chat_template.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt"),
)
"""Files that decide how a prompt becomes tokens, where they are there; config.json names the tokenizer's class."""


@dataclass(frozen=True, kw_only=True)
class TokenizerFacts:
    """None = the files do not say."""

    num_tokens: int | None
    num_base_tokens: int | None
    eos_id: int | None
    sha256: str | None
    prompt_files_sha256: str | None
    has_chat_template: bool


def tokenizer_facts(folder: Path) -> TokenizerFacts:
    """Raises OSError, ValueError, KeyError and TypeError on files that are none of a tokenizer's."""
    path, config = folder / "tokenizer.json", object_if_there(folder / "tokenizer_config.json")
    tokenizer = object_if_there(path)
    known = _ids(tokenizer, config)
    return TokenizerFacts(
        num_tokens=1 + max(known.values(), default=-1) if path.is_file() else None,
        num_base_tokens=1 + max(_base_ids(tokenizer).values(), default=-1) if path.is_file() else None,
        eos_id=known.get(_eos_token(folder, config)),
        sha256=sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        prompt_files_sha256=_digest(folder),
        has_chat_template=(folder / "chat_template.jinja").is_file()
        or bool(config.get("chat_template") or object_if_there(folder / "chat_template.json").get("chat_template")),
    )


def _ids(tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, int]:
    """Token -> id: the vocabulary, then the tokens that were added to it."""
    added = config.get("added_tokens_decoder", {}).items()
    known = {token["content"]: int(number) for number, token in added}
    if tokenizer:
        known |= _base_ids(tokenizer)
        known |= {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or []}
    return known


def _base_ids(tokenizer: Mapping[str, Any]) -> Mapping[str, int]:
    """Unigram models keep a list of (token, score), the others a mapping."""
    vocab = tokenizer["model"]["vocab"]
    return vocab if isinstance(vocab, dict) else {token: number for number, (token, _) in enumerate(vocab)}


def _eos_token(folder: Path, config: Mapping[str, Any]) -> str:
    """'' where no file names one. A token is written as text, or as an object with its content."""
    for settings in (config, object_if_there(folder / "special_tokens_map.json")):
        token = settings.get("eos_token")
        if token:
            return str(token["content"] if isinstance(token, dict) else token)
    return ""


def _digest(folder: Path) -> str | None:
    files = [path for name in PROMPT_FILES if (path := folder / name).is_file()]
    if not any(path.name.startswith(("tokenizer", "vocab")) for path in files):
        return None
    digest = sha256()
    for path in files:
        digest.update(f"{path.name}:{path.stat().st_size}:".encode() + path.read_bytes())
    return digest.hexdigest()
