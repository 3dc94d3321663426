"""The configuration: its tables and defaults, reading, changing and showing it."""
