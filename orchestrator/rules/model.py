"""MOD: the model, its tokenizer and its dtype, the same on both sides."""

from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding, skipped
from orchestrator.kinds import generation_kind, through_our_client
from orchestrator.rules.case import Case
from orchestrator.rules.versions import version_of

AUTOCAST = {"bf16": "bfloat16", "fp16": "float16"}
"""TrainingArguments' switches for mixed precision -> what the trainer then computes in."""
PADDING_ACCEPTED = Version("0.10.1")
"""vLLM takes ids of padding rows from here on (vllm-project/vllm pull request 22471)."""
EVERY_EOS = Version("1.15")
"""TRL's GRPO and RLOO trainers read every eos id of generation_config.json from here on."""


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
    if not trained or not served or trained == served or _same_files(case, trained, served):
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


def _same_files(case: Case, one: str, other: str) -> bool:
    """Two spellings of one folder (relative, a link, a hub id and its snapshot)."""
    known = [case.facts.models.get(name) for name in (one, other)]
    paths = {Path(facts.path).resolve() for facts in known if isinstance(facts, ModelFacts)}
    return len(paths) == 1 and all(isinstance(facts, ModelFacts) for facts in known)


def different_dtype(case: Case) -> Iterator[Finding]:
    """Both sides compute in the same dtype.

    ## What it checks
    `generation.dtype` against what the trainer computes in: bfloat16 or float16 with `trainer.args.bf16` or `fp16`
    (autocast), else `model.dtype`.
    ## Why it matters
    Rounding makes the sampler's log-probs differ from the trainer's, and the difference grows with training. It is a
    warning: people do train in float32 and sample in bfloat16 on purpose.
    ## Bad
        generation.dtype=bfloat16
        generation=vllm trainer.args.bf16=true
    ## Good
        model.dtype=bfloat16
        generation=vllm trainer.args.bf16=true generation.dtype=bfloat16
    """
    args, served = case.run.trainer.args, case.run.generation.dtype
    cast = next((key for key in AUTOCAST if args.get(key) is True), None)
    trained = case.run.model.dtype if cast is None else AUTOCAST[cast]
    by = "model.dtype" if cast is None else f"trainer.args.{cast}"
    if trained != served:
        yield Finding(
            severity="warning",
            values={by: trained if cast is None else True, "generation.dtype": served},
            problem=f"the trainer computes in {trained}, the generation server in {served}",
            why="The two policies round differently; sync/logprob_gap shows by how much.",
            fix="leave generation.dtype at ${model.dtype}" if cast is None else f"set generation.dtype={trained}",
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
    That `model.name` is a folder that holds a checkpoint. A hub id (`namespace/name`) that is not in the local cache is
    skipped where vLLM or a foreign trainer loads it; the embedded server needs a folder.
    ## Why it matters
    Three processes would start before the first of them finds out.
    ## Bad
        model.name=/nowhere/model
        generation=vllm model.name=model_path
        model.name=org/not-here
    ## Good
        model.dtype=float32
    """
    name = case.run.model.name
    facts = case.facts.models.get(name)
    if facts is None:
        return  # CFG003 says that there is no name
    needs_folder = through_our_client(case.run) and case.run.generation.kind != "vllm"
    if isinstance(facts, ModelFacts):
        if not needs_folder or facts.path == str(Path(name).expanduser()):
            return
        problem, fix = f"{name} is a hub id, and is here only in the hub cache", f"model.name={facts.path}"
    elif _is_hub_id(name) and not needs_folder:
        yield skipped(
            f"{name} is not on this machine ({facts}), so nothing is known of the model",
            "orchestrate check --online fetches its small files; or: hf download " + name,
            {"model.name": name},
        )
        return
    else:
        problem = f"model.name cannot be loaded: {facts}"
        fix = "name a folder with config.json, tokenizer.json, *.safetensors (hf download ID --local-dir DIR)"
        if name.isidentifier():
            fix += f"; if {name} is a variable of yours, write ${{{name}}}"
    yield Finding(
        values={"model.name": name},
        problem=problem,
        why="Trainer and generation server load it from a folder; nothing is downloaded."
        if needs_folder
        else "Neither a folder nor a hub id (namespace/name) can be found under this name.",
        fix=fix,
    )


def _is_hub_id(name: str) -> bool:
    namespace, slash, rest = name.partition("/")
    return bool(namespace and slash and rest) and "/" not in rest and namespace not in (".", "..", "~")


def tokenizer_beyond_embedding(case: Case) -> Iterator[Finding]:
    """The tokenizer's ids fit the embedding.

    ## What it checks
    Number of tokens in tokenizer.json against `vocab_size` in config.json. More embedding rows than tokens (padding)
    are usual and pass; added tokens alone beyond the embedding (a placeholder for images) are a warning.
    ## Why it matters
    An id beyond the embedding is an index error on the CPU and garbage or a device assert on a GPU.
    ## Bad
        facts: {"model": {"vocab_size": 100, "num_tokens": 108}}
    ## Good
        facts: {"model": {"vocab_size": 128, "num_tokens": 108}}
    """
    facts = case.facts.models.get(case.run.model.name)
    if isinstance(facts, ModelFacts) and facts.num_tokens is not None and facts.num_tokens > facts.vocab_size:
        only_added = facts.num_base_tokens is not None and facts.num_base_tokens <= facts.vocab_size
        yield Finding(
            severity="warning" if only_added else "error",
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
    own_data = case.run.trainer.kind == "command"  # a foreign program renders its own prompts
    if case.run.data.chat and not own_data and isinstance(facts, ModelFacts) and not facts.has_chat_template:
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


def tokens_added_on_one_side(case: Case) -> Iterator[Finding]:
    """Tokens that are added are added on both sides.

    ## What it checks
    `model.add_tokens` beside a generation server, which loads the checkpoint as it is on disk.
    ## Why it matters
    The trainer's embedding grows, the server's does not: the first weight update fails on its shape.
    ## Bad
        generation=vllm 'model.add_tokens=["<think>", "</think>"]'
    ## Good
        generation=inprocess 'model.add_tokens=["<think>"]'
    """
    added = case.run.model.add_tokens
    if added and (generation_kind(case.run.generation).server or generation_kind(case.run.generation).vllm):
        known = case.facts.models.get(case.run.generation.model)
        rows = f" of {known.vocab_size} rows" if isinstance(known, ModelFacts) else ""
        yield Finding(
            values={"model.add_tokens": added, "generation.model": case.run.generation.model},
            problem=f"the trainer adds {len(added)} tokens to an embedding{rows}, the server loads it without them",
            why="The first weight update fails: the shapes differ.",
            fix="save a checkpoint with the tokens added and name it in model.name, for both sides",
        )


def padded_vocabulary(case: Case) -> Iterator[Finding]:
    """Every id that can be sampled is one that the tokenizer knows, where completions become prompts again.

    ## What it checks
    Rows of the embedding against tokens of the tokenizer, in recipes with several turns (`reward.environment`). Padding
    rows are usual; a warning, and none from vLLM 0.10.1 on, which takes every id that the embedding has.
    ## Why it matters
    A padding row can be sampled after some training. In the next turn the id is refused as out of vocabulary.
    ## Bad
        generation=vllm reward.environment.max_turns=2
        facts: {"model": {"vocab_size": 151936, "num_tokens": 151669}}
    ## Good
        generation=vllm
        facts: {"model": {"vocab_size": 151936, "num_tokens": 151669}}
    """
    environment, facts = case.run.reward.environment, case.facts.models.get(case.run.generation.model)
    vllm = version_of(case.facts.generation_versions, "vllm")
    if vllm is not None and vllm >= PADDING_ACCEPTED:
        return
    several = (environment.max_turns or 1) > 1 or environment.calls_model or bool(environment.urls)
    if several and isinstance(facts, ModelFacts) and facts.num_tokens and facts.vocab_size > facts.num_tokens:
        yield Finding(
            severity="warning",
            values={"embedding rows": facts.vocab_size, "tokenizer": facts.num_tokens},
            problem=f"{facts.vocab_size - facts.num_tokens} rows of the embedding ({facts.num_tokens} to "
            f"{facts.vocab_size - 1}) are no tokens, and can be sampled",
            why="In the next turn such an id is out of vocabulary.",
            fix="mask them in the environment's requests (allowed_token_ids, or logit_bias)",
        )


def eos_differs(case: Case) -> Iterator[Finding]:
    """Trainer and server end a completion at the same tokens.

    ## What it checks
    The ids that end a completion for a server (generation_config.json) against the tokenizer's eos, by which TRL tells
    a finished completion from a cut one. A warning; TRL 1.15 and newer know every id of generation_config.json.
    ## Why it matters
    A completion that ended at another id counts as cut: it is masked (`mask_truncated_completions`) or punished.
    ## Bad
        generation=vllm
        facts: {"versions": {"trl": "1.9.0"}, "model": {"generation_eos_ids": [7, 1, 0], "tokenizer_eos_id": 0}}
    ## Good
        generation=vllm
        facts: {"versions": {"trl": "1.9.0"}, "model": {"generation_eos_ids": [0], "tokenizer_eos_id": 0}}
        generation=vllm
        facts: {"versions": {"trl": "1.16.0"}, "model": {"generation_eos_ids": [7, 1, 0], "tokenizer_eos_id": 0}}
    """
    facts = case.facts.models.get(case.run.generation.model)
    if not isinstance(facts, ModelFacts) or facts.generation_eos_ids is None or facts.tokenizer_eos_id is None:
        return
    trl = version_of(case.facts.versions, "trl")
    if case.run.trainer.kind == "command" or (trl is not None and trl >= EVERY_EOS):
        return
    others = [i for i in facts.generation_eos_ids if i != facts.tokenizer_eos_id]
    if others:
        yield Finding(
            severity="warning",
            values={
                "generation_config.json eos_token_id": list(facts.generation_eos_ids),
                "tokenizer eos": facts.tokenizer_eos_id,
            },
            problem=f"a server ends completions at {list(facts.generation_eos_ids)}, the trainer knows "
            f"{facts.tokenizer_eos_id} only",
            why="Completions that end at another id count as cut off.",
            fix="make the tokenizer's eos_token the one that the chat template ends a turn with",
        )
