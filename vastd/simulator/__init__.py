"""A Vast service in a box: a seeded market with bills and faults, in memory or as a service."""
