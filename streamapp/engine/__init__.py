"""The engine: tasks, which run sub-topologies, and operators. A runner does all I/O and gives the time."""
