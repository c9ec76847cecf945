"""`python -P -m orchestrator.training.tokens`: one question about tokens, answered by the trainer's own tokenizer.

The question is JSON on stdin: model, revision, trust_remote_code, and `text` or `messages` with `template_kwargs`. The
answer is a JSON list of token ids on stdout.
"""

import json
import sys

from transformers import AutoTokenizer


def main() -> int:
    question = json.load(sys.stdin)
    tokenizer = AutoTokenizer.from_pretrained(
        question["model"], revision=question["revision"], trust_remote_code=question["trust_remote_code"]
    )
    if question["text"] is not None:
        ids = tokenizer(question["text"], add_special_tokens=False)["input_ids"]
    else:
        rendered = tokenizer.apply_chat_template(
            question["messages"],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **question["template_kwargs"],
        )
        ids = rendered["input_ids"]
    json.dump(list(ids), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
