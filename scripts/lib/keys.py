"""Keys as they stand in the KV layer, to say where ranges are to be split."""
# First byte of the keys of tenants (crate `kv-api`, module `key`).
TENANT_REGION = 0x10


def encoded(number):
    """An unsigned integer as it stands in keys (crate `kv-api`, module `encoding`)."""
    size = max(1, (number.bit_length() + 7) // 8)
    return bytes([0x80 + size]) + number.to_bytes(size, "big")


def index_key(tenant_id, table_oid, index):
    """The first key of an index of a table that is as it was created, in hexadecimal digits."""
    return (bytes([TENANT_REGION]) + tenant_id.to_bytes(8, "big") + encoded(table_oid) + encoded(index)).hex()
