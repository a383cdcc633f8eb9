"""Types that JSON has no value for, and the strings that stand for theirs."""

import base64
import binascii
import datetime
import decimal
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_trio.server.readers import Mismatch, TypeSpec, expected

__all__ = ["TEXTUAL", "WRITERS"]

_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
_OFFSET: Final = r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
_CLOCK: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_NUMBER: Final = r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?"
_DURATION: Final = (
    r"P(?=[0-9]|T[0-9])(?:([0-9]{1,8})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,6})?)S)?)?"
)
_UUID: Final = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"

_is_date: Final = re.compile(_DATE).fullmatch
_is_date_time: Final = re.compile(f"{_DATE}[Tt]{_TIME}{_OFFSET}").fullmatch
_is_clock: Final = re.compile(_CLOCK).fullmatch
_is_number: Final = re.compile(_NUMBER).fullmatch
_is_uuid: Final = re.compile(_UUID).fullmatch
_duration: Final = re.compile(_DURATION).fullmatch


def _read_date(value: Any, path: str) -> datetime.date:
    if type(value) is str and _is_date(value):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    raise expected("a date such as 2026-07-28", value, path)


def _read_date_time(value: Any, path: str) -> datetime.datetime:
    if type(value) is str and _is_date_time(value):
        try:
            return datetime.datetime.fromisoformat(value.upper())
        except ValueError:
            pass
    raise expected("a date and time such as 2026-07-28T10:00:00Z", value, path)


def _read_time(value: Any, path: str) -> datetime.time:
    if type(value) is str and _is_clock(value):
        return datetime.time.fromisoformat(value)
    raise expected("a time of day such as 10:00", value, path)


def _read_duration(value: Any, path: str) -> datetime.timedelta:
    found = _duration(value) if type(value) is str else None
    if found:
        days, hours, minutes, seconds = found.groups(default="0")
        try:
            return datetime.timedelta(
                days=int(days), hours=int(hours), minutes=int(minutes), seconds=float(seconds)
            )
        except OverflowError:
            pass
    raise expected("a duration such as P1DT2H or PT90S", value, path)


def _read_uuid(value: Any, path: str) -> uuid.UUID:
    if type(value) is str and _is_uuid(value):
        return uuid.UUID(value)
    raise expected("a UUID", value, path)


def _read_decimal(value: Any, path: str) -> decimal.Decimal:
    if type(value) is str and _is_number(value):
        return decimal.Decimal(value)
    if type(value) is int:
        return decimal.Decimal(value)
    if type(value) is float:
        # What was written, not what the nearest float is.
        return decimal.Decimal(repr(value))
    raise expected("a number, or one in a string", value, path)


def _read_bytes(value: Any, path: str) -> bytes:
    if type(value) is str:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Mismatch(path, "not Base64") from None
    raise expected("a string in Base64", value, path)


def _anchored(pattern: str) -> str:
    return f"^{pattern}$".replace("(?:", "(")


TEXTUAL: Final[Mapping[type, TypeSpec]] = {
    datetime.date: TypeSpec({"type": "string", "format": "date"}, _read_date),
    datetime.datetime: TypeSpec({"type": "string", "format": "date-time"}, _read_date_time),
    datetime.time: TypeSpec({"type": "string", "pattern": _anchored(_CLOCK)}, _read_time),
    datetime.timedelta: TypeSpec(
        {"type": "string", "format": "duration", "pattern": _anchored(_DURATION)}, _read_duration
    ),
    uuid.UUID: TypeSpec({"type": "string", "format": "uuid"}, _read_uuid),
    decimal.Decimal: TypeSpec(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": _anchored(_NUMBER)}]},
        _read_decimal,
    ),
    bytes: TypeSpec({"type": "string", "contentEncoding": "base64"}, _read_bytes),
}
"""What these types come to. Times of day have no offset; dates with a time must have one."""


def _write_duration(value: datetime.timedelta) -> str:
    if value < datetime.timedelta(0):
        raise ValueError("a negative duration has no JSON form")
    seconds = f"{value.seconds}.{value.microseconds:06}".rstrip("0").rstrip(".")
    days = f"{value.days}D" if value.days else ""
    return f"P{days}T{seconds}S" if seconds != "0" or not days else f"P{days}"


def _write_date_time(value: datetime.datetime) -> str:
    if value.utcoffset() is None:
        raise ValueError("a date and time without an offset has no JSON form")
    return value.isoformat()


def _write_decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value} is not a JSON number")
    return str(value)


WRITERS: Final[Mapping[type, Callable[[Any], str]]] = {
    datetime.date: datetime.date.isoformat,
    datetime.datetime: _write_date_time,
    datetime.time: datetime.time.isoformat,
    datetime.timedelta: _write_duration,
    uuid.UUID: str,
    decimal.Decimal: _write_decimal,
}
"""How their values are written. Bytes are not among them: who returns some has to say what as."""
