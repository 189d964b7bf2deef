"""The web server of a worker: tables, health, status and topology as JSON, and a page that shows them live."""
