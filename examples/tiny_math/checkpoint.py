"""The untrained half of the checkpoint: a character tokenizer, a chat template, a small Llama."""

import json
import string
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, BOS, END, UNK, USER, ASSISTANT = SPECIAL = ("<pad>", "<bos>", "<|end|>", "<unk>", "<|user|>", "<|assistant|>")
CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n"
MAX_POSITIONS = 128

# `generation` marks what the assistant said, for TRL's assistant_only_loss. Turns only ever get appended, so a
# conversation's rendering is a prefix of every longer one, which TRL's multi-turn training needs.
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{{- '<|user|>' + message['content'] }}"
    "{%- elif message['role'] == 'assistant' %}{{- '<|assistant|>' }}"
    "{%- generation %}{{- message['content'] + '<|end|>' }}{%- endgeneration %}"
    "{%- else %}{{- raise_exception('tiny_math knows the roles user and assistant, not ' + message['role']) }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character. `decode(encode(text)) == text` for every text over `CHARACTERS`."""
    vocab = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    core = Tokenizer(models.WordLevel(vocab, unk_token=UNK))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    # Without a decoder WordLevel puts a space between tokens.
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=END,
        unk_token=UNK,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
        padding_side="left",
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Random weights from torch's current seed, float32. Head size 32 is the smallest that vLLM serves on a CPU."""
    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        **ids,
    )
    model = LlamaForCausalLM(config)
    # The whole distribution, as the trainer sees it: no truncation to hide what the policy would say.
    model.generation_config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **ids)
    return model


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """A folder that `from_pretrained` loads offline and without remote code, with transformers 4 and 5 alike."""
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    path = out / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    # transformers 5 writes names that version 4 (older vLLM) does not know; both know these.
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    # save_pretrained writes it 0600, and a wheel keeps modes.
    (out / "model.safetensors").chmod(0o644)
