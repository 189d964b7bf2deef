"""The failure desk: lists, edits, tries, replays and discards dead letters. A replayed letter is sent exactly once."""
