"""The metadata that every request has to carry."""

from typing import Any, Final

VERSION: Final = "2026-07-28"
META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
