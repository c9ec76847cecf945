"""One module per thing that can be started: builds argv, env and readiness probe; starts nothing."""
