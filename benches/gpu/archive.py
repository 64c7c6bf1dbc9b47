"""Archives of programs and of logs, written and read without other programs than Python.

    python3 benches/gpu/archive.py pack LIMIT PACKAGE FOLDER NAME...   packs programs of FOLDER, or fails above LIMIT
    python3 benches/gpu/archive.py unpack PACKAGE FOLDER
    python3 benches/gpu/archive.py logs LIMIT FILE FOLDER              packs all files of FOLDER as .tar.xz

PACKAGE is a folder. `programs.lzma2` in it is one LZMA2 stream of all programs, each filtered by elf_filter.py and
followed by zeros. `programs.json` lists names, sizes and hashes. LIMIT is a number of bytes.
"""

import hashlib
import io
import json
import lzma
import os
import struct
import sys
import tarfile

import elf_filter

# Programs share most of their code, so the dictionary reaches back to the program before the previous one. The encoder
# needs about ten times as much memory.
MAX_DICT_BYTES = 384 << 20

# The number of zeros after each program. They make the encoder write all of the program before the next one begins, so
# that the size of each is known.
N_ZEROS = 4 << 20

CHUNK_BYTES = 1 << 20

# The number of bytes that are kept of the beginning and of the end of a long log.
LOG_HALF_BYTES = 2 << 20


def filters(n_bytes):
    # xz's filter for jumps is not used, because it would make shared code differ.
    dict_bytes = min(MAX_DICT_BYTES, max(1 << 20, n_bytes))
    return [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": dict_bytes}]


def pack(limit, package, folder, names):
    """Packs the programs. Exits with an error if they need more than `limit` bytes."""
    n_bytes = sum(os.path.getsize(os.path.join(folder, name)) + N_ZEROS for name in names)
    compressor = lzma.LZMACompressor(format=lzma.FORMAT_RAW, filters=filters(n_bytes))
    packed, programs = bytearray(), []
    for name in names:
        before = len(packed)
        with open(os.path.join(folder, name), "rb") as file:
            program = file.read()
        content = filtered(program)
        for first in range(0, len(content) + N_ZEROS, CHUNK_BYTES):
            chunk = content[first:first + CHUNK_BYTES]
            chunk += bytes(min(CHUNK_BYTES, len(content) + N_ZEROS - first) - len(chunk))
            packed += compressor.compress(chunk)
        digest = hashlib.sha256(program).hexdigest()
        programs.append({"name": name, "bytes": len(program), "sha256": digest, "is_filtered": content != program})
        print(f"{name:20} {mib(len(program))}, packed {mib(len(packed) - before)}", flush=True)
    packed += compressor.flush()
    print(f"{len(names)} programs: {mib(len(packed))} of at most {mib(limit)}")
    if limit < len(packed):
        sys.exit(f"archive.py: {len(names)} programs do not fit into {mib(limit)}: give a larger limit")
    with open(os.path.join(package, "programs.lzma2"), "wb") as file:
        file.write(packed)
    for _ in read(package, programs):
        pass
    with open(os.path.join(package, "programs.json"), "w") as file:
        json.dump(programs, file, indent=1)


def filtered(program):
    """Returns the program unchanged if the filter does not know its format."""
    try:
        content = elf_filter.encode(program)
        return content if elf_filter.decode(content) == program else program
    except (ValueError, IndexError, KeyError, struct.error):
        return program


def read(package, programs):
    """Yields the name and the content of each program, and raises `ValueError` if a content differs."""
    decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=filters(MAX_DICT_BYTES))
    with open(os.path.join(package, "programs.lzma2"), "rb") as file:
        rest = b""
        for program in programs:
            parts, n_missing = [rest], program["bytes"] + N_ZEROS - len(rest)
            while 0 < n_missing:
                chunk = file.read(CHUNK_BYTES) if decompressor.needs_input else b""
                part = decompressor.decompress(chunk, n_missing)
                if not part and not chunk:
                    break
                parts.append(part)
                n_missing -= len(part)
            content = b"".join(parts)
            content, rest = content[:program["bytes"]], content[program["bytes"] + N_ZEROS:]
            if program["is_filtered"]:
                content = elf_filter.decode(content)
            if hashlib.sha256(content).hexdigest() != program["sha256"]:
                raise ValueError(f"{package}: {program['name']} is damaged: pack the programs again")
            yield program["name"], content


def unpack(package, folder):
    with open(os.path.join(package, "programs.json")) as file:
        programs = json.load(file)
    for name, content in read(package, programs):
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, 0o755)


def shortened(path):
    """Returns the content of a log without the middle of a long one."""
    n_bytes = os.path.getsize(path)
    with open(path, "rb") as file:
        if n_bytes <= 2 * LOG_HALF_BYTES:
            return file.read()
        first = file.read(LOG_HALF_BYTES)
        file.seek(n_bytes - LOG_HALF_BYTES)
        omitted = f"\n[{n_bytes - 2 * LOG_HALF_BYTES} bytes omitted]\n".encode()
        return first + omitted + file.read(LOG_HALF_BYTES)


def logs(limit, path, folder):
    """Writes the archive of a folder's files. If it exceeds the limit, the longest files are left out."""
    contents = {name: shortened(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}
    while True:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, content in contents.items():
                member = tarfile.TarInfo(f"logs/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        packed = lzma.compress(buffer.getvalue())
        if len(packed) <= limit or not contents:
            break
        longest = max(contents, key=lambda name: len(contents[name]))
        print(f"left out: {longest}")
        del contents[longest]
    with open(path, "wb") as file:
        file.write(packed)


def mib(n_bytes):
    return f"{n_bytes / (1 << 20):.1f} MiB"


def main(args):
    command, args = (args[0], args[1:]) if args else ("", [])
    if command == "pack" and 4 <= len(args):
        pack(int(args[0]), args[1], args[2], args[3:])
    elif command == "unpack" and len(args) == 2:
        unpack(*args)
    elif command == "logs" and len(args) == 3:
        logs(int(args[0]), *args[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
