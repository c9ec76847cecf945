"""The HTTP server: routes, limits, metrics, gold answers by question. The dialects are in rewards.protocols."""
