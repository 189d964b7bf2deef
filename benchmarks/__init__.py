"""streamapp and its peers side by side: CPU per event, latency, restore. `python -m benchmarks --help`."""
