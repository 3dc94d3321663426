"""The thin command line of vastd: it asks the daemon and prints; it decides nothing."""
