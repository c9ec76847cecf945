"""A tiny random Llama with a character tokenizer, written to a folder as a real model would be."""

import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
CHARACTERS = string.ascii_lowercase + string.digits + " +-*=?.,:()\n<>/|_!'"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ':' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def tokenizer(vocab_size: int = 64) -> PreTrainedTokenizerFast:
    """One token per character."""
    vocab = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    for spare in range(len(vocab), vocab_size):
        vocab[f"<spare{spare}>"] = spare
    assert len(vocab) == vocab_size
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def model(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """Random weights, sharp enough that tokens differ clearly in probability."""
    torch.manual_seed(seed)
    shape = {
        "vocab_size": 64,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        # Heads of 32: vLLM's attention on the CPU has none of 16, and only says so at the first request.
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
    }
    return LlamaForCausalLM(LlamaConfig(**{**shape, **changes})).eval()


def write(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Save model and tokenizer; returns the folder."""
    net = model(seed, **changes)
    net.save_pretrained(folder)
    tokenizer(net.config.vocab_size).save_pretrained(folder)
    return folder
