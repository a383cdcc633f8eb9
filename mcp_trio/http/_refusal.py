"""An answer whose status says no, as an exception."""

import datetime
import email.utils
import http
from typing import Final

import h11

from mcp_trio import errors

__all__ = ["MAX_BODY", "header_of", "is_refusal", "media_type", "status_error"]

MAX_BODY: Final = 64 * 1024
"""How many bytes of the body of such an answer are read."""

_SHOWN: Final = 1000
"""How many characters of it are kept for people."""


def header_of(head: h11.Response, name: bytes) -> str | None:
    """The value of the first header with a name, which is given in lower case."""
    for key, value in head.headers:
        if key == name:
            return value.decode("latin-1").strip()
    return None


def media_type(head: h11.Response) -> str:
    """What the body is said to be, without parameters; empty if nothing is said."""
    return (header_of(head, b"content-type") or "").partition(";")[0].strip().lower()


def is_refusal(head: h11.Response) -> bool:
    """Whether it is not the answer that was asked for."""
    return not 200 <= head.status_code < 300


def status_error(peer: str, head: h11.Response, body: bytes | bytearray) -> errors.HttpStatusError:
    """What is to be raised for a refusal, of whose body this much has been read."""
    headers = {
        name.decode("ascii").lower(): value.decode("latin-1") for name, value in head.headers
    }
    status = head.status_code
    try:
        phrase = " " + http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    text = f"{peer} answers with HTTP status {status}{phrase}"
    if 300 <= status < 400:
        where = headers.get("location", "nowhere")
        text += (
            f": redirected to {where[:200]!r}, which is not followed "
            "(307 and 308 are, within the origin, and five in a row)"
        )
    elif kind := media_type(head):
        text += f" ({kind})"
    return errors.HttpStatusError(
        text,
        status=status,
        headers=headers,
        retry_after=_retry_after(headers.get("retry-after")),
        www_authenticate=tuple(
            value.decode("latin-1") for name, value in head.headers if name == b"www-authenticate"
        ),
        body=bytes(body[: 4 * _SHOWN]).decode("utf-8", "replace")[:_SHOWN],
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds: the header may hold them, or a date."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        # There may be any number of them.
        return min(float(value[:20]), errors.LONGEST_DELAY)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0.0, (moment - datetime.datetime.now(datetime.UTC)).total_seconds())
