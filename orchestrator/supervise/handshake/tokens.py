"""The probe text, and its tokens by the model's own files.

The files are read without transformers, which takes seconds to load. Where a server disagrees with them, the trainer's
own tokenizer is asked (`orchestrator.training.tokens`): transformers rebuilds some tokenizers on loading.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from orchestrator.facts.json_files import object_if_there

PROBE_TEXT = "12+7=19 The quick brown fox; \\boxed{x_1} <answer>é</answer>\n"
"""Digits, words, LaTeX, tags, a letter beyond ASCII, a newline."""
PROBE_MESSAGES = ({"role": "user", "content": PROBE_TEXT},)
SAMPLED_TOKENS = 512
"""Of the vocabulary, evenly spread: all of it for a small one."""
TRAINER_TIMEOUT_S = 25.0
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class NoTokenizerError(ValueError):
    """The model's files do not say how text becomes tokens, or hold no chat template."""


@dataclass(frozen=True, kw_only=True)
class ModelTokens:
    """A model's tokenizer as its files have it."""

    folder: Path
    tokenizer: Tokenizer

    @staticmethod
    def of(folder: str) -> "ModelTokens":
        """Raises NoTokenizerError."""
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise NoTokenizerError(f"{folder} has no tokenizer.json")
        return ModelTokens(folder=Path(folder), tokenizer=Tokenizer.from_file(str(path)))

    def encode(self, text: str) -> list[int]:
        """No special tokens are added, as in a chat template's text."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def probe(self) -> str:
        """Text that two tokenizers hardly cut alike: the fixed one, every added token, a sample of the vocabulary."""
        added = [token.content for _, token in sorted(self.tokenizer.get_added_tokens_decoder().items())]
        size = self.tokenizer.get_vocab_size(with_added_tokens=False)
        spread = range(0, size, max(1, size // SAMPLED_TOKENS))
        pieces = self.tokenizer.decode_batch([[token] for token in spread], skip_special_tokens=False)
        # Half of a character cannot be sent as text.
        return PROBE_TEXT + "".join(added) + "\n".join(piece for piece in pieces if "\ufffd" not in piece)

    def render(self, messages: Sequence[Mapping[str, str]], template_kwargs: Mapping[str, Any]) -> list[int]:
        """The prompt for an answer to `messages`. Raises NoTokenizerError where there is no template or it fails."""
        config = object_if_there(self.folder / "tokenizer_config.json")
        special = {name: _content(config[name]) for name in SPECIAL if config.get(name)}
        try:
            template = _environment().from_string(_template(self.folder, config))
            text = template.render(
                messages=list(messages), add_generation_prompt=True, **{**special, **template_kwargs}
            )
        except jinja2.TemplateError as error:
            raise NoTokenizerError(f"the chat template fails on the probe: {error}") from error
        return self.encode(text)


def fingerprint(ids: Sequence[int]) -> str:
    return f"{len(ids)} tokens, sha256 {hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()[:16]}"


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> str:
    """In words; "" where there is none."""
    if list(ours) == list(theirs):
        return ""
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    here, there = (ids[place] if place < len(ids) else "nothing" for ids in (ours, theirs))
    return f"Token {place} of the probe is {here} here and {there} there."


def ask_trainer(
    model: str,
    revision: str | None,
    *,
    trust_remote_code: bool,
    text: str | None = None,
    messages: Sequence[Mapping[str, str]] | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> list[int]:
    """Tokens by the trainer's own tokenizer, in an interpreter of its own. Raises NoTokenizerError.

    Takes seconds, and TRAINER_TIMEOUT_S at most.
    """
    question = {
        "model": model,
        "revision": revision,
        "trust_remote_code": trust_remote_code,
        "text": text,
        "messages": None if messages is None else list(messages),
        "template_kwargs": dict(template_kwargs or {}),
    }
    argv = (sys.executable, "-P", "-m", "orchestrator.training.tokens")
    try:
        done = subprocess.run(
            argv, input=json.dumps(question), capture_output=True, text=True, timeout=TRAINER_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NoTokenizerError(f"the trainer's tokenizer did not load within {TRAINER_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise NoTokenizerError(f"the trainer's tokenizer fails: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    ids: list[int] = json.loads(done.stdout)
    return ids


def _environment() -> ImmutableSandboxedEnvironment:
    """What transformers documents that chat templates may use."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda wanted: datetime.now().strftime(wanted)
    return environment


class _Generation(jinja2.ext.Extension):
    """`{% generation %}`, which marks the assistant's words, renders what it encloses."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 reads the class attribute

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)


def _template(folder: Path, config: Mapping[str, Any]) -> str:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    found = config.get("chat_template") or object_if_there(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        found = next((one["template"] for one in found if one.get("name") == "default"), None)
    if not isinstance(found, str):
        raise NoTokenizerError(f"{folder} has no chat template")
    return found


def _content(token: Any) -> str:
    return str(token["content"]) if isinstance(token, Mapping) else str(token)
