"""Randomized chaos: one application with every family of operator, and faults drawn from a seed (docs/faults.md)."""
