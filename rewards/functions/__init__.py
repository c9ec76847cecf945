"""The built-in reward functions, in TRL's shape. Each declares PER_SAMPLE and a SELF_TEST pair (right, wrong)."""
