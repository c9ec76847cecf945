"""Fields of config classes, ours and those of installed libraries, read from source: names, types, docstrings."""
