"""What the display reads from metrics.jsonl, whatever state the file is in."""

import json
from pathlib import Path

from orchestrator.render.progress import MetricsTail, figures, trend


def line(step: int, reward: float) -> str:
    return json.dumps({"step": step, "reward": reward, "sync/logprob_gap": 1e-6}) + "\n"


def test_lines_arrive_as_they_are_written_and_a_half_one_waits(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert not tail.look()
    path.write_text(line(1, 0.5) + line(2, 0.6)[:20])
    assert tail.look()
    assert tail.rewards == [0.5]
    with path.open("a") as file:
        file.write(line(2, 0.6)[20:])
    assert tail.look()
    assert (tail.rewards, tail.last["step"]) == ([0.5, 0.6], 2)
    assert not tail.look()


def test_a_file_that_a_resumed_trainer_replaces_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, 0.5) + line(2, 0.6) + line(3, 0.7))
    tail = MetricsTail(path)
    tail.look()
    shorter = tmp_path / "metrics.tmp"
    shorter.write_text(line(1, 0.5))
    shorter.replace(path)
    tail.look()
    assert tail.rewards == [0.5]


def test_figures_and_trend() -> None:
    assert (
        figures({"step": 12, "reward": 0.6125, "sync/logprob_gap": 3e-6}, 120)
        == "step 12/120  reward 0.613  sync gap 3.0e-06"
    )
    assert trend([0.0, 0.5, 1.0]) == "▁▅█"
    assert trend([0.5, 0.5]) == "▁▁"
    assert len(trend([0.1] * 500)) == 40
