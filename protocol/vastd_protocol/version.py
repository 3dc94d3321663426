"""The protocol version and its history.

Rule: the number rises when a client that follows the old text would misread the new one.
Optional fields, methods, error codes and events may be added without a rise.

1 (2026-11-30): first version.
"""

from typing import Final

PROTOCOL_VERSION: Final = 1
VASTD_VERSION: Final = "0.1.0"  # kept equal to pyproject.toml by a test
