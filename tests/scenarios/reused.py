"""Parts of the demo: a broker from start to end, and sizes in words."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "demo"))
from actors import Broker, Failure  # noqa: E402
from screen import size  # noqa: E402

__all__ = ["Broker", "Failure", "size"]
