"""Reads the event files of a folder with nothing of ours: a second implementation, as TensorBoard
reads them. Prints what it would show, as JSON: {tag: [[step, value], ..]}.

    tensorboard_read.py FOLDER

Checksums and lengths must be right up to the last byte.
"""
import glob
import json
import os
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        n, check = struct.unpack_from("<QI", data, at)
        assert check == masked(data[at:at + 8]), f"length at byte {at}"
        event = data[at + 12:at + 12 + n]
        assert struct.unpack_from("<I", data, at + 12 + n)[0] == masked(event), f"event at byte {at}"
        at += 16 + n
        yield event


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of a message of Protocol Buffers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif wire == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
        else:
            assert wire == 5, wire
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        yield key >> 3, value


def main():
    files = sorted(glob.glob(os.path.join(sys.argv[1], "*tfevents*")))
    assert files, "no event file"
    shown = {}
    for path in files:
        with open(path, "rb") as file:
            events = [dict(fields(r)) for r in records(file.read())]
        assert events[0][3] == b"brain.Event:2" and events[0][1] > 1.6e9
        for event in events[1:]:
            if 7 in event:  # a restart: later events are void
                for list_ in shown.values():
                    list_[:] = [x for x in list_ if x[0] < event[2]]
            for number, value in fields(event.get(5, b"")):
                assert number == 1
                scalar = dict(fields(value))
                shown.setdefault(scalar[1].decode(), []).append([event[2], scalar[2]])
    print(json.dumps(shown))


main()
