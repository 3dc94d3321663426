"""The port to a provider of machines, its pacing, and the adapter for Vast."""
