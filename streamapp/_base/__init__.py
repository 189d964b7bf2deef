"""Helpers that every floor may use and no application imports. They know the errors and nothing else of streamapp."""
