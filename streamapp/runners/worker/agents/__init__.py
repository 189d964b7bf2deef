"""Plain agents of Faust, which get the application's guarantees for reads, commits, messages and failures."""
