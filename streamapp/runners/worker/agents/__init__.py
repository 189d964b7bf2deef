"""Plain agents of Faust with the guarantees of the application: what they read, commit, send, and what becomes of their failures."""
