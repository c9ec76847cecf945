"""What a reward server was started with."""

from dataclasses import dataclass, field

from rewards.protocols.common import END_TEXTS
from rewards.scoring import OnError
from rewards.serving.gold import GoldSet


@dataclass(frozen=True, kw_only=True)
class Settings:
    workers: int
    timeout_s: float
    on_error: OnError
    max_batch: int
    max_body_bytes: int
    max_queue: int
    """Samples of all requests that wait or are being scored."""
    request_timeout_s: float
    golds: GoldSet | None = None
    end_texts: tuple[str, ...] = END_TEXTS
    """Special tokens that are cut off a completion's end; common.END_TEXTS says why."""
    log_samples: bool = False
    """Whether prompts, completions and gold answers go to stderr."""
    token: str | None = field(default=None, repr=False)
