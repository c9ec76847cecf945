"""What must not be printed: values of settings that are called like a secret, and passwords inside addresses."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.findings import Finding
from orchestrator.rules.security import SECRET_NAME

HIDDEN = "(not shown)"
SHORTEST = 4
"""Characters. A shorter secret hides nothing, and replacing it in a sentence would garble the sentence."""

_SETTING = re.compile(
    r"((^|_)(secret|password|passwd|passphrase|credentials?|api_?key|(access|secret|private)_key)"
    r"|(hub|hf|api|auth|access|bearer|refresh)_token)$",
    re.IGNORECASE,
)
# A user and password inside an address, and keys of well-known services wherever they stand.
_RECOGNISED = re.compile(r"(?<=://)[^/@\s'\"]+:[^/@\s'\"]+(?=@)|\b(hf_|sk-|ghp_|github_pat_|AKIA)[\w-]{16,}")
_ITEM = re.compile(r"""([\w.]+)(\s*:\s*)('[^']*'|"[^"]*"|[^,}\]]+)""")


def is_secret(path: str) -> bool:
    """Whether a setting is called like a secret: a variable in some `env` (as rule SEC003 has it), or an argument."""
    *holders, name = path.split(".")
    if "env" in holders or name.isupper():  # also below a misspelt `env`
        return SECRET_NAME.search(name) is not None
    return _SETTING.search(name) is not None


def shown_override(text: str) -> str:
    """An override as it may be printed; also one in a mapping's place, `trainer.env={HF_TOKEN: x}`."""
    key, equals, value = text.partition("=")
    path = key.lstrip("+~")
    if equals and is_secret(path):
        return f"{key}={HIDDEN}"
    items = _ITEM.sub(lambda m: f"{m[1]}{m[2]}{HIDDEN}" if is_secret(f"{path}.{m[1]}") else m[0], value)
    return without_recognised(f"{key}{equals}{items}")


def without_secrets(finding: Finding) -> Finding:
    """The finding with every secret left out, of its values and of what it says."""
    secrets: set[str] = set()
    values = {path: _hidden(path, value, secrets) for path, value in finding.values.items()}
    said = _replacer(secrets)
    return replace(finding, values=values, problem=said(finding.problem), why=said(finding.why), fix=said(finding.fix))


def _hidden(path: str, value: Any, secrets: set[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _hidden(f"{path}.{key}", item, secrets) for key, item in value.items()}
    if is_secret(path) and value not in (None, "", HIDDEN):
        secrets.add(str(value))
        return HIDDEN
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_hidden(path, item, secrets) for item in value]
    return without_recognised(value) if isinstance(value, str) else value


def _replacer(secrets: set[str]) -> Callable[[str], str]:
    longest_first = sorted((s for s in secrets if len(s) >= SHORTEST), key=len, reverse=True)

    def said(text: str) -> str:
        for secret in longest_first:
            text = text.replace(secret, HIDDEN)
        return without_recognised(text)

    return said


def without_recognised(text: str) -> str:
    """The text without passwords in addresses and without keys of well-known services."""
    return _RECOGNISED.sub(HIDDEN, text)
