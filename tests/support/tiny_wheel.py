"""A package that pip installs without any network."""

import zipfile
from pathlib import Path

WHEEL = "tinyland-1.0-py3-none-any.whl"


def a_wheel(path: Path) -> None:
    """Write a package that pip installs without any network."""
    info = "tinyland-1.0.dist-info"
    files = {
        "tinyland.py": "GREETING = 'hello from the set-up'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinyland\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
