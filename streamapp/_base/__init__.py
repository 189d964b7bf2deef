"""Helpers for all other packages of streamapp, but not for applications. From other packages of streamapp, helpers
import only the errors."""
