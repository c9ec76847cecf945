"""What of generation and reward follows from several neutral keys together."""

import re
from collections.abc import Iterator

from neutral_settings import Recipe

VLLM_KINDS = ("vllm", "colocate")


def generation_kind(recipe: Recipe) -> str:
    if recipe.text("t.kind") == "async_grpo":
        return "vllm"  # TRL's async trainer has no other way
    if recipe.has("g.mode"):
        return {"server": "vllm", "colocate": "colocate"}[recipe.text("g.mode")]
    if recipe.text("t.use_vllm", "false") != "true":
        return "inprocess"
    default = "server" if recipe.project == "axolotl" else "colocate"
    return {"server": "vllm", "colocate": "colocate"}[recipe.text("t.vllm_mode", default)]


def generation(recipe: Recipe) -> Iterator[str]:
    kind = generation_kind(recipe)
    if kind == "inprocess":
        yield from ("generation=colocate", "generation.kind=inprocess")
    else:
        yield f"generation={kind}"
    if kind == "inprocess" and recipe.has("t.vllm_mode"):
        yield f"trainer.args.vllm_mode={recipe.text('t.vllm_mode')}"
    if recipe.text("g.sleep") in ("1", "true"):
        yield "generation.args.enable_sleep_mode=true"
    if kind in VLLM_KINDS:
        yield f"generation.data_parallel_size={_engines(recipe)}"
    if recipe.has("g.gpus") and recipe.settings["g.gpus"].is_list:
        yield f"generation.gpus={recipe.indices('g.gpus')}"
    if kind == "vllm":
        yield "generation.weight_sync.backend=nccl"  # nobody else sends files
        yield from _server(recipe)


def _engines(recipe: Recipe) -> int:
    size = recipe.number("g.tp", 1)
    if recipe.has("g.engines", "g.dp"):
        return recipe.number("g.engines" if recipe.has("g.engines") else "g.dp", 1)
    if recipe.has("g.gpus") and not recipe.settings["g.gpus"].is_list:
        return recipe.number("g.gpus", 1) // size
    if recipe.has("g.machines"):
        return recipe.number("g.machines", 1) * recipe.number("h.gpus", 1) // size
    return 1


def _server(recipe: Recipe) -> Iterator[str]:
    """Where it listens, and where the trainer looks for it."""
    machine = recipe.text("g.machine") or ("generation-machines" if recipe.has("g.machines") else "")
    host = machine or recipe.text("g.host")
    if machine:
        yield f"generation.num_machines={recipe.number('g.machines', 1)}"
    if host:
        # Whoever serves beyond loopback trusts the network; the rows never say so, and SEC001 asks.
        yield from (f"generation.host={host}", "generation.trusted_network=true")
    port = recipe.text("g.port", recipe.text("t.server_port"))
    if port:
        yield f"generation.port={port}"
    if recipe.has("t.server_base_url"):
        yield f"generation.url={recipe.text('t.server_base_url')}"
    elif recipe.has("t.server_host"):
        yield f"generation.url='http://{recipe.text('t.server_host')}:${{generation.port}}'"


def rewards(recipe: Recipe) -> Iterator[str]:
    url = recipe.text("r.url")
    served = url.startswith("http") and recipe.text("t.kind") != "opd"
    yield f"reward={'external' if served else 'inprocess'}"
    if served:
        yield f"reward.url={url}"
    elif url.startswith("http"):
        yield f"reward.judge.url={url}"  # the teacher of a distillation
    # Whoever rewards, an environment or a part that the row leaves out, stands as one function.
    named = recipe.has("t.reward_funcs") and recipe.text("t.reward_funcs") != "none"
    names = recipe.settings["t.reward_funcs"].items if named else ("reward",)
    if recipe.text("t.kind") in ("ebft", "opd"):
        names = ()  # frozen features, or a teacher
    weights = recipe.settings["t.reward_weights"].items if recipe.has("t.reward_weights") else ("1",) * len(names)
    functions = (_function(name, weight) for name, weight in zip(names, weights, strict=True))
    yield f"reward.functions=[{', '.join(functions)}]"


def _function(name: str, weight: str) -> str:
    plain = re.sub(r"\W+", "_", name).strip("_")
    return f"{{name: {plain}, target: 'rewards_of_the_row.py:{plain}', weight: {weight}}}"


def environment(recipe: Recipe) -> Iterator[str]:
    urls = [f"http://environment-{i}" for i in range(recipe.number("r.env_urls", 0))]
    urls += [recipe.text("r.env_url")] if recipe.has("r.env_url") else []
    urls += [f"http://127.0.0.1:{recipe.text('r.env_port')}"] if recipe.has("r.env_port") else []
    if urls:
        quoted = ", ".join(f"'{url}'" for url in urls)
        yield f"reward.environment.urls=[{quoted}]"


def judge(recipe: Recipe) -> Iterator[str]:
    if recipe.has("r.gpus"):
        named, last = recipe.settings["r.gpus"].is_list, recipe.number("h.gpus", 1) - 1
        # A bare number is a count: the last GPUs, as the policy takes the first.
        gpus = recipe.indices("r.gpus") if named else list(range(last - recipe.number("r.gpus", 1) + 1, last + 1))
        yield f"reward.judge.gpus={gpus}"
