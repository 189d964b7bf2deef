"""The failure desk: lists, edits, tries, replays and discards dead letters.

For readers of committed records, a replay writes the record of each open letter exactly once.
"""
