"""The DeepSpeed or accelerate file that `launcher.config` names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def launcher_config(config: str | None) -> Mapping[str, Any] | str | None:
    """Its content, None where no file is named, or why it cannot be read. DeepSpeed's is JSON, accelerate's YAML."""
    if config is None:
        return None
    path = Path(config).expanduser()
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if kind == "JSON" else yaml.safe_load(text)
    except OSError as error:
        return f"{config} cannot be read: {error.strerror}"
    except (ValueError, yaml.YAMLError) as error:
        return f"{config} is not {kind}: {' '.join(str(error).split())}"
    if not isinstance(content, Mapping):
        return f"{config} holds no settings: a mapping is needed"
    return {str(key): value for key, value in content.items()}
