"""The failure desk: lists, edits, tries, replays and discards dead letters.

For readers of committed records, a replay sends each letter exactly once.
"""
