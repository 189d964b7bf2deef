"""The engine: tasks, which run sub-topologies, and operators. A runner reads and writes Kafka, opens
the state, and gives the time."""
