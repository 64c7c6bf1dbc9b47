"""Installs PyTorch and PyG for a machine without a GPU, so that `cargo xtask gpu dry-run` runs the programs that need them.

    python3 benches/gpu/cpu_torch.py FOLDER

FOLDER becomes a virtual environment with the versions that benches/gpu/README.md names. The wheel of PyTorch on the Python
package index is built for CUDA and links libraries of 2 GB. Of these, only the CUDA runtime is installed; the others are
replaced by libraries whose functions return an error, which is enough for computing on the CPU. Needs Linux, `cc` and
`readelf`.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile
import venv

PACKAGES = ["torch==2.11.0", "torch-geometric==2.8.0", "nvidia-cuda-runtime==13.0.96"]
# What these import; everything else that they declare is for GPUs or other tasks.
IMPORTED = ["numpy", "filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools", "psutil", "tqdm",
            "requests", "xxhash", "pyparsing"]

# Libraries that are there: the runtime is installed, and the driver is loaded only where there is a GPU.
PRESENT = {"libcudart.so.13", "libcuda.so.1"}

# Functions of NVIDIA's libraries, for symbols without a version.
NVIDIA = re.compile(r"(cu|nccl|nvrtc|nvshmem|nv[A-Z])")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Symbols:
    """The libraries that PyTorch needs, and the functions that it takes from each, with their versions."""

    def __init__(self, libraries):
        own = {os.path.basename(path) for path in libraries}
        self.needed, self.file_of, undefined, defined = set(), {}, set(), set()
        for path in libraries:
            self.needed |= set(re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl)[^\]]*)\]", output("readelf", "-d", path)))
            self.read_versions(path)
            for fields in map(str.split, output("readelf", "-W", "--dyn-syms", path).splitlines()):
                if len(fields) < 8 or not fields[0].endswith(":"):
                    continue
                name, _, version = fields[7].partition("@")
                (undefined.add((name, version.strip("@"))) if fields[6] == "UND" else defined.add(name))
        self.needed -= own | PRESENT
        self.undefined = {(name, version) for name, version in undefined if name not in defined}

    def read_versions(self, path):
        file = None
        for line in output("readelf", "-W", "-V", path).splitlines():
            if match := re.search(r"File: (\S+)", line):
                file = match[1]
            elif match := re.search(r"Name: (\S+)\s+Flags", line):
                self.file_of.setdefault(match[1], file)

    def of_libraries(self):
        """Returns the functions of each library, with their versions. Functions without a version may be in any library."""
        found = {library: {} for library in self.needed}
        any_library = min(found, default=None)
        for name, version in self.undefined:
            library = self.file_of.get(version)
            if library in found:
                found[library][name] = version
            elif not version and NVIDIA.match(name) and any_library:
                found[any_library].setdefault(name, "")
        return found


def write_library(path, functions):
    with tempfile.TemporaryDirectory() as folder:
        source, script = os.path.join(folder, "library.c"), os.path.join(folder, "versions.map")
        with open(source, "w") as file:
            file.writelines(f"int {name}(void) {{ return 1; }}\n" for name in sorted(functions))
        with open(script, "w") as file:
            for version in sorted(set(functions.values()) - {""}):
                names = "; ".join(sorted(name for name, of in functions.items() if of == version))
                file.write(f"{version} {{ global: {names}; }};\n")
        versions = [f"-Wl,--version-script={script}"] if os.path.getsize(script) else []
        command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", path, f"-Wl,-soname,{os.path.basename(path)}"]
        subprocess.run([*command, *versions, source], check=True)


def main(folder):
    venv.create(folder, with_pip=True, clear=True)
    python = os.path.join(folder, "bin", "python3")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    subprocess.run([*pip, "--no-deps", *PACKAGES], check=True)
    subprocess.run([*pip, *IMPORTED], check=True)
    site = output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    symbols = Symbols(glob.glob(os.path.join(site, "torch/lib/*.so")))
    for library, functions in symbols.of_libraries().items():
        write_library(os.path.join(site, "nvidia/cu13/lib", library), functions)
    check = "import torch, torch_geometric.nn; assert not torch.cuda.is_available(); print('torch', torch.__version__)"
    print(output(python, "-c", check).strip())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
