"""The wire contract between vastd and its clients: JSON-RPC 2.0 over a Unix socket.

Imported by both ends; knows neither. Modules load only what a call needs, because every
`vastctl` start pays for what is imported here (DESIGN D6).
"""
