"""Commands for running applications: move their offsets, find dangers (the doctor), list the rights that they need."""
