"""How long the scoring of one batch may take: the server's limit of a request, and the trainer's patience with it."""

from orchestrator.schema import RewardConfig

ANSWER_MARGIN_S = 30.0  # queueing and transport beside the functions' own time


def longest_scoring_s(reward: RewardConfig, batch_size: int) -> float:
    """Seconds: every unit runs into its own limit, one after another on each worker; then the post-process hook."""
    return reward.timeout_s * (batch_size / max(reward.workers, 1) + 2)


def longest_reply_s(reward: RewardConfig, batch_size: int) -> float:
    """Seconds that a client waits for one reply."""
    return longest_scoring_s(reward, batch_size) + ANSWER_MARGIN_S
