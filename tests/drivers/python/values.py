"""One value of every type, as Python sees it."""
import datetime as dt
import decimal
import uuid

UTC = dt.timezone.utc
VALUES = [
    ("bool", True),
    ("int2", -32768),
    ("int4", 2147483647),
    ("int8", -9223372036854775808),
    ("float4", 1.5),
    ("float8", 1.0 / 3.0),
    ("numeric", decimal.Decimal("-12345678901234567890.012345678900")),
    ("text", "grüße, 🐭\tand\nlines"),
    ("varchar(20)", "short"),
    ("char(8)", "padded  "),
    ("bytea", bytes(range(256))),
    ("date", dt.date(2024, 2, 29)),
    ("time", dt.time(23, 59, 59, 999999)),
    ("timestamp", dt.datetime(1999, 12, 31, 23, 59, 59, 123456)),
    ("timestamptz", dt.datetime(2024, 7, 1, 12, 0, 0, 1, tzinfo=UTC)),
    ("interval", dt.timedelta(days=3, hours=4, microseconds=5)),
    ("uuid", uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")),
    ("int4[]", [1, None, -3]),
    ("text[]", ["a", 'quote " and \\', None, "", "NULL"]),
    ("timestamptz[]", [dt.datetime(2020, 1, 1, tzinfo=UTC)]),
    ("numeric[]", [decimal.Decimal("0.10"), None]),
    ("uuid[]", [uuid.UUID(int=1)]),
]
JSON = {"b": [1, 2.5, None, True, {"deep": "ü"}], "a": "x"}
