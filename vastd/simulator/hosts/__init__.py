"""The machines of the simulated Vast one can really SSH into: sandbox, disk, sshd."""
