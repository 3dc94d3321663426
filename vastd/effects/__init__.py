"""Effects: what the supervisor starts for one rental or job. Each may be repeated at any time.

An effect reads the ledger, talks through the ports, and reports with `Ledger.commit`. It keeps
nothing that a restart would miss.
"""
