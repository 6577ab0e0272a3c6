"""LongBench (Bai et al., 2023): its 16 English and code tasks, with its own prompts, lengths, templates and metrics."""
