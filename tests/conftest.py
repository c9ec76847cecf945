"""What every test shares: nothing of the user's own cache is read or written, and nothing of another test's."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For what modules set up before their first test."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def own_cache(cache_of_this_session: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompt counts of an earlier run are facts for the rules: no test starts with another's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_of_this_session / str(hash(request.node.nodeid))))
