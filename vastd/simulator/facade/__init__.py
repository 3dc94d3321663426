"""The REST interface of the simulated Vast on loopback: HTTP, routes, faults made visible."""
