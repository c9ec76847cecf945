"""Running functions over batches: worker processes with time limits that hold, or inside the server."""
