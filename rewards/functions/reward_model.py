"""The score of a reward model: the one output of a sequence classifier, read from a local folder or the hub.

Messages go through the model's chat template, without a generation prompt; a plain prompt and its completion are joined
as they are, or given as a pair (`template`). Sequences are sorted by length, padded on the right and scored in
micro-batches; what else is in the batch does not change a score. Nothing is cut unless `too_long` says so.

Range: the model's raw output (a logit), any finite number.
Source: transformers' AutoModelForSequenceClassification; safetensors only, no code from the hub.
"""

import math
from collections.abc import Sequence
from typing import Any

from rewards.batch import Text
from rewards.classifiers.classifier import Options
from rewards.classifiers.loading import load_classifier
from rewards.contract import PrepareError

PROOF_PROMPT = "What is 2 + 2?"
PROOF = ("2 + 2 = 4", "No. 9 - 1 and 57", "4")
"""Completions that a working model tells apart, whatever it prefers."""


def prepare(**params: Any) -> None:
    """Loads the model and scores PROOF. Raises PrepareError for a model or params that do not work here."""
    try:
        classifier = load_classifier(Options(**{"model": "", **params}))
        scores = classifier.score([PROOF_PROMPT] * len(PROOF), PROOF)
    except (ValueError, RuntimeError) as error:
        raise PrepareError(str(error)) from error
    shown = ", ".join(f"{score:g}" for score in scores)
    if not all(map(math.isfinite, scores)):
        raise PrepareError(f"{params['model']} scores {shown}: its weights or its dtype are broken (params.dtype)")
    if len(set(scores)) == 1:
        raise PrepareError(f"{params['model']} scores {len(scores)} different texts alike ({shown}): no reward model")


def reward_model(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    model: str = "",
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    batch_size: int = 16,
    max_tokens: int | None = None,
    max_length: int | None = None,
    template: str = "auto",
    too_long: str = "error",
    label_index: int | None = None,
    threads: int | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """The model's output for each prompt with its completion. Params: see rewards.classifiers.classifier.Options.

    Raises ValueError for bad params, and for a sample that is longer than the model takes or `max_length` allows;
    PrepareError where the model cannot be loaded.
    """
    options = Options(
        model=model,
        revision=revision,
        device=device,
        dtype=dtype,
        batch_size=batch_size,
        max_tokens=max_tokens,
        max_length=max_length,
        template=template,
        too_long=too_long,
        label_index=label_index,
        threads=threads,
    )
    return list(load_classifier(options).score(prompts, completions))
