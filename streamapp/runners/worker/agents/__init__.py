"""Plain agents of Faust with the guarantees of the application, for reads, commits, messages and failures."""
