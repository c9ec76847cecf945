"""The count of rows that pass, per file and per stage, at the end of the tests."""

from collections import Counter

import pytest

STAGE = "stage"
"""A test that is a row names its stage with record_property."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed: Counter[tuple[str, str]] = Counter()
    rows: Counter[tuple[str, str]] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            if not isinstance(report, pytest.TestReport) or (report.when != "call" and report.passed):
                continue
            stage = dict(report.user_properties).get(STAGE)
            if stage is None:
                continue
            name = report.nodeid.partition("::")[0].rpartition("test_cases_")[2].removesuffix(".py")
            for key in ((name, ""), (name, str(stage))):
                rows[key] += 1
                passed[key] += outcome == "passed"
    if rows:
        terminalreporter.section("cases: rows that pass")
    for name, stage in sorted(rows):
        label = f"  {stage}" if stage else name
        terminalreporter.write_line(f"{label:<24} {passed[name, stage]:>3} / {rows[name, stage]}")
