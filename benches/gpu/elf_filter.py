"""A reversible filter of ELF programs, with which similar programs compress better together.

Programs that share code contain it at different addresses, so their tables of addresses share nothing. The filter
replaces the addresses in three tables by the difference from the address before, which is the same in all programs:

* relocations (`.rela.dyn`): columns of offsets, types and values instead of rows
* functions for unwinding (`.eh_frame`; System V ABI, and the Linux Standard Base 5.0, section 10.6)
* the search table of these functions (`.eh_frame_hdr`)

All tables keep their lengths. Files that are not 64-bit little-endian ELF programs are unchanged.
"""

import array
import struct

SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
RELA, PROGBITS = 4, 1
MASK = (1 << 32) - 1

# Encodings of addresses in `.eh_frame`: 4 signed bytes relative to their own position, and relative to `.eh_frame_hdr`.
PC_RELATIVE, TABLE_RELATIVE = 0x1B, 0x3B


def encode(content):
    """Returns the filtered program. Raises an exception if a table has an unexpected format."""
    return transform(content, is_encoding=True)


def decode(content):
    return transform(content, is_encoding=False)


def transform(content, is_encoding):
    data = bytearray(content)
    for name, kind, address, offset, size in sections(data):
        table = memoryview(data)[offset:offset + size]
        if kind == RELA and size % 24 == 0:
            relocations(table, is_encoding)
        elif name == b".eh_frame":
            unwind_entries(table, address, is_encoding)
        elif name == b".eh_frame_hdr":
            search_table(table, is_encoding)
    return bytes(data)


def sections(data):
    """Returns name, type, address, offset and size of the sections."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return []
    (first,) = struct.unpack_from("<Q", data, 0x28)
    n_sections, names_idx = struct.unpack_from("<HH", data, 0x3C)
    if len(data) < first + n_sections * SECTION_HEADER.size or n_sections <= names_idx:
        return []
    headers = [SECTION_HEADER.unpack_from(data, first + idx * SECTION_HEADER.size) for idx in range(n_sections)]
    names = bytes(data[headers[names_idx][4]:headers[names_idx][4] + headers[names_idx][5]])
    name = lambda at: names[at:names.find(b"\0", at)]
    found = [(name(header[0]), header[1], *header[3:6]) for header in headers if header[1] in (RELA, PROGBITS)]
    return [section for section in found if section[3] + section[4] <= len(data)]


def deltas(values):
    """Replaces each value by its difference from the one before."""
    return array.array(values.typecode, [
        (value - before) & ((1 << 8 * values.itemsize) - 1) for value, before in zip(values, (0, *values))])


def sums(values):
    """Reverses `deltas`."""
    total, mask, out = 0, (1 << 8 * values.itemsize) - 1, array.array(values.typecode)
    for value in values:
        total = (total + value) & mask
        out.append(total)
    return out


def columns(table, n_columns, typecode, differing, is_encoding):
    """Exchanges rows and columns, and codes the columns in `differing` as differences."""
    values = array.array(typecode, bytes(table))
    n_rows = len(values) // n_columns
    rows = array.array(typecode, bytes(len(values) * values.itemsize))
    for column in range(n_columns):
        of_rows, of_columns = slice(column, None, n_columns), slice(column * n_rows, (column + 1) * n_rows)
        if is_encoding:
            column_values = values[of_rows]
            rows[of_columns] = deltas(column_values) if column in differing else column_values
        else:
            column_values = values[of_columns]
            rows[of_rows] = sums(column_values) if column in differing else column_values
    table[:] = rows.tobytes()


def relocations(table, is_encoding):
    """Codes rows of the address, the type and the value, 8 bytes each."""
    columns(table, 3, "Q", (0, 2), is_encoding)


def search_table(table, is_encoding):
    """Codes rows of a function's address and its entry's address, 4 bytes each, after a header of 12 bytes."""
    # Version 1; the encodings of the address of `.eh_frame`, of the number of rows (4 bytes) and of the rows.
    if bytes(table[:4]) == bytes([1, PC_RELATIVE, 3, TABLE_RELATIVE]) and len(table) % 8 == 4:
        columns(table[12:], 2, "I", (0, 1), is_encoding)


def unwind_entries(table, address, is_encoding):
    """Codes each entry's distance to its common entry, the address of its function, and that of its landing pads.

    The distance becomes the number of the common entry, from 1. The addresses, which are relative to their own
    position, become differences from those of the entry before.
    """
    common_entries, numbers = [], {}
    before = {"function": 0, "pads": 0}
    at = 0
    while at + 12 <= len(table):
        length, distance = struct.unpack_from("<II", table, at)
        end = at + 4 + length
        if length < 8 or len(table) < end:
            raise ValueError(f"entry {at} of .eh_frame has {length} bytes")
        if distance == 0:
            numbers[at] = len(common_entries) + 1
            common_entries.append((at, has_pads(table, at)))
        else:
            number = numbers[at + 4 - distance] if is_encoding else distance
            common_at, with_pads = common_entries[number - 1]
            struct.pack_into("<I", table, at + 4, number if is_encoding else at + 4 - common_at)
            relative_address(table, at + 8, address, "function", before, is_encoding)
            # After the address and the length of the function: the length of the address of the landing pads.
            if with_pads and at + 21 <= end and table[at + 16] == 4:
                relative_address(table, at + 17, address, "pads", before, is_encoding)
        at = end


def relative_address(table, at, address, kind, before, is_encoding):
    (number,) = struct.unpack_from("<I", table, at)
    absolute = (number + (address + at if is_encoding else before[kind])) & MASK
    base = before[kind] if is_encoding else address + at
    struct.pack_into("<I", table, at, (absolute - base) & MASK)
    before[kind] = absolute


def has_pads(table, at):
    """Returns true if the entries of a common entry have the address of landing pads."""
    end = bytes(table[at + 9:at + 32]).index(b"\0") + at + 9
    augmentation = bytes(table[at + 9:end])
    # Three numbers (the alignments and a register) and the length of the data that `augmentation` describes, 1 byte each.
    field = end + 5
    encodings = {}
    for letter in augmentation.decode()[1:]:
        encodings[letter] = table[field]
        # The address of the personality function follows its encoding.
        field += 5 if letter == "P" else 1
    if augmentation[:1] != b"z" or encodings.get("R") != PC_RELATIVE or encodings.get("L", PC_RELATIVE) != PC_RELATIVE:
        raise ValueError(f"common entry {at} of .eh_frame has the augmentation {augmentation} with {encodings}")
    return "L" in encodings
