"""What runs inside the trainer process. The only part besides the generation server that imports torch."""
