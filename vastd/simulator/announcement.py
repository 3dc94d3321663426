"""How a simulator service is found and what it runs with by default; light to import."""

from pathlib import Path
from typing import Final

from msgspec import Struct

IDLE_S: Final = 600.0  # DESIGN D7
DEMO_SCALE: Final = 0.02  # a boot of some 100 s takes 2 s


class ServiceInfo(Struct, frozen=True, kw_only=True):
    """`service.json`: where a running service is. Holds secrets; mode 0600."""

    url: str
    api_key: str
    control_token: str
    pid: int
    warning: str = ""  # what the user must know, such as a missing sandbox


def info_path(state_dir: Path) -> Path:
    """Return where a service announces itself."""
    return state_dir / "service.json"
