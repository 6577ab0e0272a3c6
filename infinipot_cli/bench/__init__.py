"""Benchmarks that ship: the same reading, distilling and answering as `ask`, on texts whose answers are known."""
