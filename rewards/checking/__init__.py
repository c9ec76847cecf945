"""The contract test of reward functions: `reward check`, and `orchestrate check --deep`."""
