"""Kafka's own hash of a record key (org.apache.kafka.common.utils.Utils.murmur2), and the partition it names."""

from __future__ import annotations

SEED, MULTIPLIER, SHIFT, WORD = 0x9747B28C, 0x5BD1E995, 24, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned number of 32 bits."""
    length = len(data)
    value = SEED ^ length
    whole = length - length % 4
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & WORD
        part ^= part >> SHIFT
        value = (value * MULTIPLIER & WORD) ^ (part * MULTIPLIER & WORD)
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & WORD
    value = (value ^ (value >> 13)) * MULTIPLIER & WORD
    return value ^ (value >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Where the producer's default partitioner puts a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
