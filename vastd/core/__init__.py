"""The functional core: events, tables and decisions as pure functions. No I/O, no clock."""
