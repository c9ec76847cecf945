"""A reward file that reads well and cannot be imported."""

import no_such_package_anywhere


def score(completions, **columns):
    return no_such_package_anywhere.scores(completions)
