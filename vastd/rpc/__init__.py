"""The daemon's door: connections, framing, dispatch and subscriptions. Knows no rental."""
