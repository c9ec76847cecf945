from pathlib import Path

import pytest

from tests.facts.made_up_models import write_model


@pytest.fixture
def fetched_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of somebody who has fetched what shipped recipes name and the project does not hold: made-up files."""
    write_model(tmp_path / "models" / "smollm2-135m-instruct")
    monkeypatch.chdir(tmp_path)
