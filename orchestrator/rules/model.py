"""MOD: the model, its tokenizer and its dtype, the same on both sides."""

from collections.abc import Iterator
from pathlib import Path

from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding
from orchestrator.rules.case import Case

SERVED = ("embedded", "external")
"""Kinds of generation that load the model in a process of their own."""


def different_model(case: Case) -> Iterator[Finding]:
    """The generation server serves the model that is trained.

    ## What it checks
    `generation.model` against `model.name`, and the vocabularies of both where the files are here.
    ## Why it matters
    Weights of one model do not fit another; with equal shapes the completions come from a policy that nobody trains.
    ## Bad
        generation.model=/models/other
    ## Good
        model.name=/models/other
    """
    trained, served = case.run.model.name, case.run.generation.model
    if not trained or not served or trained == served:
        return
    vocab = {
        name: facts.vocab_size
        for name in (trained, served)
        if isinstance(facts := case.facts.models.get(name), ModelFacts)
    }
    sizes = f" (vocabularies {vocab[trained]} and {vocab[served]})" if len(vocab) == 2 else ""
    yield Finding(
        values={"model.name": trained, "generation.model": served},
        problem=f"the trainer updates {trained}, the generation server loads {served}{sizes}",
        why="Completions would come from a policy that is not the one being trained.",
        fix="leave generation.model at ${model.name}, or set model.name for both",
    )


def different_dtype(case: Case) -> Iterator[Finding]:
    """Both sides compute in the same dtype.

    ## What it checks
    `generation.dtype` against `model.dtype`.
    ## Why it matters
    Rounding makes the sampler's log-probs differ from the trainer's, and the difference grows with training. It is a
    warning: people do train in float32 and sample in bfloat16 on purpose.
    ## Bad
        generation.dtype=bfloat16
    ## Good
        model.dtype=bfloat16
    """
    trained, served = case.run.model.dtype, case.run.generation.dtype
    if trained != served:
        yield Finding(
            severity="warning",
            values={"model.dtype": trained, "generation.dtype": served},
            problem=f"the trainer computes in {trained}, the generation server in {served}",
            why="The two policies round differently; sync/logprob_gap shows by how much.",
            fix="leave generation.dtype at ${model.dtype}",
        )


def different_revision(case: Case) -> Iterator[Finding]:
    """Both sides load the same revision.

    ## What it checks
    `generation.revision` against `model.revision`.
    ## Why it matters
    Two revisions of one name can differ in weights, tokenizer or template.
    ## Bad
        generation.revision=v2
    ## Good
        model.revision=v2
    """
    trained, served = case.run.model.revision, case.run.generation.revision
    if trained != served:
        yield Finding(
            values={"model.revision": trained, "generation.revision": served},
            problem=f"the trainer loads revision {trained or 'default'}, the generation server {served or 'default'}",
            why="Under one name these can be two models.",
            fix="leave generation.revision at ${model.revision}",
        )


def unreadable_model(case: Case) -> Iterator[Finding]:
    """The model is where the recipe says.

    ## What it checks
    That `model.name` is a folder that holds a checkpoint. Of a hub id in the local cache, the finding names the folder.
    ## Why it matters
    Three processes would start before the first of them finds out.
    ## Bad
        model.name=/nowhere/model
    ## Good
        model.dtype=float32
    """
    name = case.run.model.name
    facts = case.facts.models.get(name)
    if facts is None:
        return  # CFG003 says that there is no name
    if isinstance(facts, ModelFacts) and facts.path == str(Path(name).expanduser()):
        return
    if isinstance(facts, ModelFacts):
        problem, fix = f"{name} is a hub id, and is here only in the hub cache", f"model.name={facts.path}"
    else:
        problem = f"model.name cannot be loaded: {facts}"
        fix = "name a folder with config.json, tokenizer.json, *.safetensors (hf download ID --local-dir DIR)"
    yield Finding(
        values={"model.name": name},
        problem=problem,
        why="Trainer and generation server load it from a folder; nothing is downloaded.",
        fix=fix,
    )


def tokenizer_beyond_embedding(case: Case) -> Iterator[Finding]:
    """The tokenizer's ids fit the embedding.

    ## What it checks
    Number of tokens in tokenizer.json against `vocab_size` in config.json. More embedding rows than tokens (padding)
    are usual and pass.
    ## Why it matters
    An id beyond the embedding is an index error on the CPU and garbage or a device assert on a GPU.
    ## Bad
        facts: {"model": {"vocab_size": 100, "num_tokens": 108}}
    ## Good
        facts: {"model": {"vocab_size": 128, "num_tokens": 108}}
    """
    facts = case.facts.models.get(case.run.model.name)
    if isinstance(facts, ModelFacts) and facts.num_tokens is not None and facts.num_tokens > facts.vocab_size:
        yield Finding(
            values={"model.name": case.run.model.name},
            problem=f"the tokenizer has {facts.num_tokens} tokens, the embedding {facts.vocab_size} rows",
            why="The first prompt with one of the extra tokens fails inside the model.",
            fix="save the model after resize_token_embeddings, or use the tokenizer that belongs to it",
        )


def no_chat_template(case: Case) -> Iterator[Finding]:
    """Chat prompts have a template that renders them.

    ## What it checks
    With `data.chat: true`, that the model's folder has a chat template.
    ## Why it matters
    Without one, the trainer fails at the first prompt; a default template of some library would train on a format that
    the model never saw.
    ## Bad
        facts: {"model": {"has_chat_template": false}}
    ## Good
        data.chat=false
        facts: {"model": {"has_chat_template": false}}
    """
    facts = case.facts.models.get(case.run.model.name)
    if case.run.data.chat and isinstance(facts, ModelFacts) and not facts.has_chat_template:
        yield Finding(
            values={"data.chat": True, "model.name": case.run.model.name},
            problem=f"data.chat = true, and {case.run.model.name} has no chat template",
            why="Nothing says how a conversation becomes tokens.",
            fix="set data.chat=false to send prompts as plain text, or add chat_template.jinja to the model",
        )


def remote_code(case: Case) -> Iterator[Finding]:
    """Code that comes with a checkpoint runs only when asked for.

    ## What it checks
    `model.trust_remote_code`.
    ## Why it matters
    It runs Python from the checkpoint with the rights of whoever trains. A warning, so that it is seen.
    ## Bad
        model.trust_remote_code=true
    ## Good
        model.trust_remote_code=false
    """
    if case.run.model.trust_remote_code:
        yield Finding(
            severity="warning",
            values={"model.trust_remote_code": True},
            problem=f"Python code from {case.run.model.name} will run in the trainer",
            why="A checkpoint can then do anything that you can.",
            fix="leave it off unless the model needs it and you have read the code",
        )
