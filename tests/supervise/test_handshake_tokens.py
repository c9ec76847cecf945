"""Tokens by the model's files against transformers, which the trainer uses."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import trl
from talking import MODEL, ROOT
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from orchestrator.supervise.handshake import tokens
from orchestrator.supervise.handshake.interview import Fact, Interview, Skipped
from orchestrator.supervise.handshake.tokens import ModelTokens, NoTokenizerError, ask_trainer, first_difference

TEMPLATES = sorted(Path(trl.__file__).parent.glob("chat_templates/*.jinja"))
TALK = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": tokens.PROBE_TEXT})


def test_the_probe_becomes_what_the_trainer_makes_of_it() -> None:
    files, trainer = ModelTokens.of(MODEL), AutoTokenizer.from_pretrained(MODEL)
    text = files.probe()
    assert files.encode(text) == trainer(text, add_special_tokens=False)["input_ids"]
    assert set(range(len(trainer))) - set(files.encode(text)) <= {trainer.unk_token_id}, "a small vocabulary, all of it"
    rendered = trainer.apply_chat_template(
        list(tokens.PROBE_MESSAGES), add_generation_prompt=True, tokenize=True, return_dict=True
    )
    assert files.render(tokens.PROBE_MESSAGES, {}) == rendered["input_ids"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_chat_templates_read_as_transformers_reads_them(tmp_path: Path, path: Path) -> None:
    """Every template that TRL ships, with a tokenizer that keeps each character."""
    shutil.copy(Path(MODEL, "tokenizer.json"), tmp_path)
    special = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**special, "chat_template": path.read_text()}))
    said: list[str] = []

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Text(ModelTokens):
        def encode(self, text: str) -> list[int]:
            said.append(text)
            return []

    files = Text(folder=tmp_path, tokenizer=ModelTokens.of(str(tmp_path)).tokenizer)
    try:
        (expected,), _ = render_jinja_template(
            conversations=[list(TALK)], chat_template=path.read_text(), add_generation_prompt=True, bos_token="<s>",
            eos_token="</s>", enable_thinking=False,
        )  # fmt: skip
    except Exception:  # the template refuses these messages: ours must, too
        with pytest.raises(NoTokenizerError, match="fails on the probe"):
            files.render(TALK, {"enable_thinking": False})
        return
    files.render(TALK, {"enable_thinking": False})
    assert said == [expected]


def test_templates_by_name_and_none(tmp_path: Path) -> None:
    shutil.copy(Path(MODEL, "tokenizer.json"), tmp_path)
    with pytest.raises(NoTokenizerError, match="no chat template"):
        ModelTokens.of(str(tmp_path)).render(TALK, {})
    named = [{"name": "tool_use", "template": "1"}, {"name": "default", "template": "{{ messages[1]['content'] }}"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    files = ModelTokens.of(str(tmp_path))
    assert files.render(TALK, {}) == files.encode(tokens.PROBE_TEXT)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ raise_exception('no') }}"}))
    with pytest.raises(NoTokenizerError, match="fails on the probe: no"):
        files.render(TALK, {})
    with pytest.raises(NoTokenizerError, match=r"has no tokenizer\.json"):
        ModelTokens.of(str(tmp_path / "nowhere"))


def test_the_trainers_own_tokenizer_is_asked_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ModelTokens.of(MODEL)
    assert ask_trainer(MODEL, None, trust_remote_code=False, text="1+1=") == files.encode("1+1=")
    by_message = ask_trainer(MODEL, None, trust_remote_code=False, messages=tokens.PROBE_MESSAGES)
    assert by_message == files.render(tokens.PROBE_MESSAGES, {})
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NoTokenizerError, match="the trainer's tokenizer fails: "):
        ask_trainer(str(tmp_path), None, trust_remote_code=False, text="1")
    monkeypatch.setattr(tokens, "TRAINER_TIMEOUT_S", 0.2)
    with pytest.raises(NoTokenizerError, match=r"did not load within 0\.2 s"):
        ask_trainer(MODEL, None, trust_remote_code=False, text="1")


def test_differences_are_named() -> None:
    assert first_difference([1, 2], [1, 2]) == ""
    assert first_difference([1, 2, 3], [1, 5, 3]) == "Token 1 of the probe is 2 here and 5 there."
    assert first_difference([1], [1, 7]) == "Token 1 of the probe is nothing here and 7 there."


def field_names() -> Iterator[str]:
    for shape in (Fact, Skipped):
        yield from (one.name for one in dataclasses.fields(shape))
    yield from Interview(service="reward", kind="local", url="", started=True).as_json()


def test_the_documentation_names_every_field() -> None:
    page = (ROOT / "docs" / "handshake.md").read_text()
    assert [name for name in field_names() if f"`{name}`" not in page] == []
