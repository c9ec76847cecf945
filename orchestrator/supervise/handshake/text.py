"""Whether text becomes the same tokens on both sides, and a conversation the same prompt."""

from collections.abc import Callable

from orchestrator.facts import Facts, ModelFacts
from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.schema import RunConfig
from orchestrator.supervise.handshake.interview import Interview
from orchestrator.supervise.handshake.tokens import (
    PROBE_MESSAGES,
    PROBE_TEXT,
    ModelTokens,
    NoTokenizerError,
    ask_trainer,
    fingerprint,
    first_difference,
)

TOKENIZER = "tokenizer (a probe text)"
TEMPLATE = "chat template (a probe message)"


def compare_tokens(talk: Interview, run: RunConfig, facts: Facts, client: GenerationClient) -> None:
    """The tokenizer, then the chat template where prompts are conversations."""
    known = facts.models.get(run.model.name)
    if not isinstance(known, ModelFacts):
        talk.skip(TOKENIZER, f"the model's files are not here: {known}")
        return
    try:
        files = ModelTokens.of(known.path)
    except NoTokenizerError:
        files = None  # an older format, which only transformers reads
    text = files.probe() if files else PROBE_TEXT
    _compare(
        talk,
        TOKENIZER,
        asked=lambda: client.tokenize(text, add_special_tokens=False),
        quick=(lambda: files.encode(text)) if files else None,
        sure=lambda: ask_trainer(
            run.model.name, run.model.revision, trust_remote_code=run.model.trust_remote_code, text=text
        ),
        why="The same text would be other tokens.",
        fix=f"serve the tokenizer of {run.model.name}",
    )
    if not _are_conversations(run, facts):
        talk.skip(TEMPLATE, "the prompts are plain text")
    elif not known.has_chat_template:
        talk.skip(TEMPLATE, f"{run.model.name} has none")
    else:
        _compare_template(talk, run, client, files)


def _compare_template(talk: Interview, run: RunConfig, client: GenerationClient, files: ModelTokens | None) -> None:
    given = run.trainer.args.get("chat_template_kwargs")
    kwargs = given if isinstance(given, dict) else {}
    _compare(
        talk,
        TEMPLATE,
        asked=lambda: client.tokenize_chat(PROBE_MESSAGES, kwargs),
        quick=(lambda: files.render(PROBE_MESSAGES, kwargs)) if files else None,
        sure=lambda: ask_trainer(
            run.model.name,
            run.model.revision,
            trust_remote_code=run.model.trust_remote_code,
            messages=PROBE_MESSAGES,
            template_kwargs=kwargs,
        ),
        why="The server would wrap a conversation in other words than the trainer.",
        fix=f"serve the files of {run.model.name}, without --chat-template, or with the model's own",
    )


def _compare(
    talk: Interview,
    name: str,
    *,
    asked: Callable[[], list[int]],
    quick: Callable[[], list[int]] | None,
    sure: Callable[[], list[int]],
    why: str,
    fix: str,
) -> None:
    """`quick` reads the model's files; `sure` loads the trainer's tokenizer and is called where `quick` differs."""
    talk.asking = name
    try:
        theirs = asked()
    except GenerationError as error:
        if error.status is None:
            raise
        if "chat template" in error.message:
            talk.compare(name, "tokens", error.message, why=why, fix=fix)
        else:
            talk.skip(name, f"the server does not say: {error}")
        return
    ours, note = _ours(theirs, quick, sure)
    if ours is None:
        talk.skip(name, note, said=fingerprint(theirs))
        return
    why = " ".join(part for part in (why, first_difference(ours, theirs), note) if part)
    talk.compare(name, fingerprint(ours), fingerprint(theirs), why=why, fix=fix)


def _ours(
    theirs: list[int], quick: Callable[[], list[int]] | None, sure: Callable[[], list[int]]
) -> tuple[list[int] | None, str]:
    """Our tokens, None where they are not to be had, and why they are less than sure."""
    ours = None
    try:
        ours = quick() if quick is not None else None
        return (ours if ours == theirs else sure()), ""
    except NoTokenizerError as error:
        return ours, f"({error})"


def _are_conversations(run: RunConfig, facts: Facts) -> bool:
    rows = () if isinstance(facts.data, str) else facts.data.first_rows
    return run.data.chat or any(isinstance(row.get("prompt"), list) for row in rows)
