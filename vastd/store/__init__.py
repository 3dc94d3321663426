"""Durable state: one SQLite database, one lock, one writer."""
