"""Compute Kafka's hash of a record key (org.apache.kafka.common.utils.Utils.murmur2), and the resulting partition."""

from __future__ import annotations

SEED, MULTIPLIER, SHIFT, MASK_32 = 0x9747B28C, 0x5BD1E995, 24, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of `data` as an unsigned 32-bit number."""
    length = len(data)
    value = SEED ^ length
    block_end = length - length % 4
    for offset in range(0, block_end, 4):
        block = int.from_bytes(data[offset : offset + 4], "little") * MULTIPLIER & MASK_32
        block ^= block >> SHIFT
        value = (value * MULTIPLIER & MASK_32) ^ (block * MULTIPLIER & MASK_32)
    if block_end < length:
        value = (value ^ int.from_bytes(data[block_end:], "little")) * MULTIPLIER & MASK_32
    value = (value ^ (value >> 13)) * MULTIPLIER & MASK_32
    return value ^ (value >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition that the default partitioner of the Kafka producer selects for the key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
