import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rewards.calling.adapters import bind
from rewards.calling.loading import BUILTINS, LoadError, load, read_signature, source_sha256
from rewards.calling.signature import signature_of
from rewards.contract import FunctionSpec

UserFile = Callable[..., str]


@pytest.mark.parametrize("target", [*BUILTINS, *BUILTINS.values()])
def test_ast_and_inspect_agree_on_builtins(target: str) -> None:
    assert read_signature(target) == signature_of(load(target))


SOURCE = """
import functools
from helper import helped
def plain(prompts, completions, answer, unit="m", *, level, extra=None, **kwargs): return []
async def slow(completions, completion_ids, log_extra, log_metric, trainer_state): return []
def parametrised(completions, threshold, answer): return []
def only(prompts, completions, /): return []
made = functools.partial(plain, level=1)
class Judge: pass
"""


def test_ast_and_inspect_agree_on_user_files(user_file: UserFile) -> None:
    user_file("def helped(completions, truth): return []", "helper.py")
    path = user_file(SOURCE)
    for name in ("plain", "slow", "parametrised"):
        target = f"{path}:{name}"
        assert read_signature(target, ["threshold"]) == signature_of(load(target), ["threshold"])


def test_columns_of_a_signature(user_file: UserFile) -> None:
    user_file("def helped(completions, truth): return []", "helper.py")
    path = user_file(SOURCE)
    plain = read_signature(f"{path}:plain")
    assert (plain.required, plain.optional, plain.accepts_kwargs) == (("answer", "level"), ("unit", "extra"), True)
    assert read_signature(f"{path}:slow").required == ()
    assert read_signature(f"{path}:slow").is_async
    assert read_signature(f"{path}:parametrised", ["threshold"]).required == ("answer",)
    assert not read_signature(f"{path}:made").exact
    with pytest.raises(LoadError, match="positional-only"):
        read_signature(f"{path}:only")


def test_reexports_are_followed_without_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "boom_pkg" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "boom_pkg/__init__.py").write_text("raise RuntimeError('imported')")
    (package / "__init__.py").write_text("from .deep import judge as judged")
    (package / "deep.py").write_text("def judge(completions, truth): ...")
    monkeypatch.chdir(tmp_path)
    assert read_signature("boom_pkg.inner:judged").required == ("truth",)
    assert "boom_pkg" not in sys.modules
    with pytest.raises(LoadError, match="RuntimeError: imported"):
        load("boom_pkg.inner:judged")


def test_trl_reward_is_readable() -> None:
    assert read_signature("trl.rewards:accuracy_reward").required == ("solution",)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("acuracy", "did you mean accuracy"),
        ("rewards.functions.accuracy:acuracy", "did you mean accuracy"),
        ("rewards.functons.accuracy:accuracy", "did you mean functions"),
        ("nowhere_at_all:f", "no module 'nowhere_at_all'"),
        ("minee.py:score", "did you mean mine.py"),
        ("mine.py:scor", "did you mean score"),
        ("broken.py:f", "not valid Python"),
        ("mine.py:not-a-name", "not of the form"),
    ],
)
def test_errors_say_what_was_meant(
    user_file: UserFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    user_file("def score(completions): return []")
    user_file("def f(:", "broken.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoadError, match=words):
        read_signature(target)
    with pytest.raises(LoadError, match="SyntaxError" if "broken" in target else words):
        load(target)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_thing", "No module named 'no_such_thing'"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("score = 3", "is a int, not a function"),
        ("class score: pass", "not a function"),
    ],
)
def test_files_that_cannot_be_used(user_file: UserFile, source: str, words: str) -> None:
    with pytest.raises(LoadError, match=words):
        load(f"{user_file(source)}:score")


def test_a_user_file_named_rewards_shadows_nothing(user_file: UserFile, tmp_path: Path) -> None:
    user_file("def help_me(): return 3.0", "helper_of_mine.py")
    user_file("from helper_of_mine import help_me\ndef score(completions): return [help_me()]", "rewards.py")
    code = (
        "from rewards.calling.loading import load; import sys; f = load('rewards.py:score');"
        "import rewards.contract; print(f([1]), f.__module__.startswith('_orchestrate_user_'), sys.path[-1])"
    )
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    out = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert out.stdout.split() == ["[3.0]", "True", str(tmp_path)], out.stderr


def test_hash_follows_the_file(user_file: UserFile) -> None:
    first = source_sha256(load(f"{user_file('def f(completions): return []', 'a.py')}:f"))
    other = source_sha256(load(f"{user_file('def f(completions): return [1]', 'b.py')}:f"))
    assert first is not None
    assert first != other


def test_unknown_params_are_refused() -> None:
    with pytest.raises(LoadError, match="no parameter 'patern'"):
        bind(FunctionSpec("f", f"{__file__}:scored", params={"patern": "x"}))


def scored(completions: list[str], pattern: str) -> list[float]:
    return [0.0 for _ in completions]


def test_loading_is_light() -> None:
    code = (
        "import rewards.calling.loading, rewards.client, sys;"
        "print([m for m in ('fastapi', 'sympy', 'torch', 'math_verify') if m in sys.modules])"
    )
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    out = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr


def test_a_helper_of_the_same_name_in_another_folder_is_refused(tmp_path: Path) -> None:
    for folder, bonus in (("a", 1.0), ("b", 2.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"helpers_{tmp_path.name}.py").write_text(f"BONUS = {bonus}\n")
        (tmp_path / folder / "mine.py").write_text(
            f"from helpers_{tmp_path.name} import BONUS\ndef f(completions): return [BONUS] * len(completions)\n"
        )
    assert load(f"{tmp_path}/a/mine.py:f")(["x"]) == [1.0]
    with pytest.raises(LoadError, match=r"b/mine.py imports helpers_\w+, which would be .*/a/helpers_"):
        load(f"{tmp_path}/b/mine.py:f")


def test_an_installed_package_does_not_take_the_place_of_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "packaging.py").write_text("")
    (tmp_path / "mine.py").write_text("import packaging\ndef f(completions): return [1.0]\n")
    with pytest.raises(LoadError, match=r"imports packaging, which would be .*: rename the file beside it"):
        load(f"{tmp_path}/mine.py:f")
