"""The engine: tasks that run sub-topologies, and their operators. No I/O, no clock, no threads."""
