"""HTTP dialects: each turns its requests into a Batch and a ScoreResult into its replies."""
