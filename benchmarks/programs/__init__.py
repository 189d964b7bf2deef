"""One program per peer. Each runs one workload and prints one line of JSON; see `benchmarks.programs.meter`."""
