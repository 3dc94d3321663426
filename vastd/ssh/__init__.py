"""The way to a machine: endpoints, identity, host keys, and the SSH port with its adapter."""
