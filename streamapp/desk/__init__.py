"""The failure desk: lists, edits, tries, replays and discards dead letters.

Readers of committed records see the replayed record of each open letter exactly once, even after a crash.
"""
