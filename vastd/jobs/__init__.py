"""Jobs on a rented machine: the port, the on-box runner, code sync, logs, heartbeat, collection."""
