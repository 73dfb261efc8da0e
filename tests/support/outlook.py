"""Outlook's .msg files, which are compound files: written here, since no library of ours does."""

import struct
from collections.abc import Mapping
from itertools import pairwise

Tree = Mapping[str, "bytes | Tree"]
_FREE, _END, _FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_SMALL = 4096  # shorter streams are in the stream of the root


class _Compound:
    """A compound file that is being written: its directory, and the tables of its sectors."""

    def __init__(self) -> None:
        self.entries: list[list[int | str]] = [["Root Entry", 5, _FREE, _FREE, _END, 0]]
        self.small, self.small_table = b"", list[int]()
        self.sectors, self.table = b"", list[int]()

    def add(self, level: Tree, parent: int) -> None:
        numbers: list[int] = []
        for name, content in level.items():
            numbers.append(len(self.entries))
            if isinstance(content, bytes):
                keep = self.place if len(content) >= _SMALL else self.place_small
                self.entries.append([name, 2, _FREE, _FREE, keep(content), len(content)])
            else:
                self.entries.append([name, 1, _FREE, _FREE, _END, 0])
                self.add(content, numbers[-1])
        for number, following in pairwise(numbers):
            self.entries[number][3] = following
        self.entries[parent][2] = numbers[0] if numbers else _FREE

    def place(self, data: bytes) -> int:
        start = _chain(self.table, -(-len(data) // 512))
        self.sectors += data.ljust(-(-len(data) // 512) * 512, b"\0")
        return start

    def place_small(self, data: bytes) -> int:
        start = _chain(self.small_table, -(-len(data) // 64))
        self.small += data.ljust(-(-len(data) // 64) * 64, b"\0")
        return start

    def written(self) -> bytes:
        self.entries[0][4], self.entries[0][5] = self.place(self.small), len(self.small)
        small_start = self.place(struct.pack(f"<{len(self.small_table)}I", *self.small_table))
        small_count = -(-len(self.small_table) * 4 // 512)
        free = _entry(["", 0, _FREE, _FREE, 0, 0]) * (-len(self.entries) % 4)
        directory = self.place(b"".join(map(_entry, self.entries)) + free)
        fat_start, fats = len(self.table), 1
        while (fat_start + fats) * 4 > fats * 512:
            fats += 1
        table = [*self.table, *[_FAT] * fats]
        table += [_FREE] * (fats * 128 - len(table))
        header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 16
        header += struct.pack("<HHHHH6xIIIIIIIII", 0x3E, 3, 0xFFFE, 9, 6, 0, fats, directory, 0,
                              _SMALL, small_start, small_count, _END, 0)  # fmt: skip
        places = [*range(fat_start, fat_start + fats), *[_FREE] * (109 - fats)]
        header += struct.pack("<109I", *places)
        return header + self.sectors + struct.pack(f"<{len(table)}I", *table)


def _chain(table: list[int], count: int) -> int:
    start = len(table)
    table += [*range(start + 1, start + count), _END] if count else []
    return start if count else _END


def compound_file(tree: Tree) -> bytes:
    """Return a compound file with these streams and storages."""
    file = _Compound()
    file.add(tree, 0)
    return file.written()


def _entry(entry: list[int | str]) -> bytes:
    name, kind, child, following, start, size = entry
    encoded = f"{name}\0".encode("utf-16-le") if name else b""
    return encoded.ljust(64, b"\0") + struct.pack(
        "<HBBIII16xI16xIQ", len(encoded), kind, 1, _FREE, following, child, 0, start, size
    )


def storage(header: int, properties: Mapping[int, str | bytes | int]) -> dict[str, bytes]:
    """Return the streams of a message, recipient or attachment with these properties."""
    table, streams = b"", dict[str, bytes]()
    for name, value in properties.items():
        if isinstance(value, int):
            table += struct.pack("<HHIII", 3, name, 6, value, 0)
            continue
        kind = 0x1F if isinstance(value, str) else 0x102
        data = value.encode("utf-16-le") if isinstance(value, str) else value
        table += struct.pack("<HHIII", kind, name, 6, len(data) + 2 * (kind == 0x1F), 0)
        streams[f"__substg1.0_{name:04X}{kind:04X}"] = data
    return {"__properties_version1.0": b"\0" * header + table, **streams}


def outlook_mail(
    properties: Mapping[int, str | bytes | int],
    recipients: list[Mapping[int, str | bytes | int]],
    attachments: list[Mapping[int, str | bytes | int]],
) -> bytes:
    tree: dict[str, bytes | Tree] = {**storage(32, properties)}
    for number, one in enumerate(recipients):
        tree[f"__recip_version1.0_#{number:08X}"] = storage(8, one)
    for number, one in enumerate(attachments):
        tree[f"__attach_version1.0_#{number:08X}"] = storage(8, one)
    return compound_file(tree)
