//! A stub of the CUDA driver and of NCCL, which runs CUDA code on machines without a GPU: `cargo xtask test --device
//! cuda --stub`, or `cargo xtask cuda-stub -- COMMAND` for any program that was built with the feature `cuda`.
//!
//! The stub (`xtask/cuda_stub/`) executes the kernels' PTX on the CPU and traces a program's driver calls. It ends the
//! process at an unknown instruction or driver function, at an access to the memory of another device, and at an access
//! outside all allocations. It does not measure time, and detects neither races between blocks nor errors of memory
//! ordering.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::wheel::{self, Wheel};
use crate::workspace::{self, SourceFile};

/// The wheel with `libdevice`, the library of exponentials and logarithms that CubeCL links into kernels. On machines
/// with a GPU, the CUDA toolkit contains `libdevice`.
const NVVM: Wheel = Wheel {
    requirement: "nvidia-nvvm==13.5.37",
    file: "nvidia_nvvm-13.5.37-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    sha256: "c41bfa362e407405163f103c2229f0765f8cc2ed7d148b754dc77f228bf7e070",
};

/// Options of `cargo xtask cuda-stub`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of devices that the stub reports
    #[arg(long, default_value = "2")]
    devices: usize,
    /// The program and its arguments; without a program, prints the environment variables to set
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// The built stub: the folder with its libraries and traces, and the number of devices that it reports.
#[derive(Debug)]
pub(crate) struct Stub {
    folder: PathBuf,
    n_devices: usize,
}

/// Builds the stub and runs a command on it.
pub(crate) fn run(args: Args) -> Result<()> {
    let stub = Stub::build(args.devices)?;
    let [program, rest @ ..] = &args.command[..] else {
        for (name, value) in stub.vars() {
            println!("export {name}={}", value.display());
        }
        return Ok(());
    };
    let outcome = workspace::run(stub.set(Command::new(program).args(rest)));
    print!("{}", stub.report(&[])?);
    outcome
}

impl Stub {
    /// Compiles the libraries and installs `libdevice`, below `target/cuda-stub`. Removes the traces of earlier runs.
    ///
    /// # Errors
    /// Returns an error if the libraries cannot be compiled, or if `libdevice` is missing and cannot be downloaded.
    pub(crate) fn build(n_devices: usize) -> Result<Self> {
        let root = workspace::root()?;
        let stub = Self { folder: root.join("target/cuda-stub"), n_devices };
        let (source, library) = (root.join("xtask/cuda_stub"), stub.library());
        fs::create_dir_all(&library)?;
        fs::create_dir_all(stub.traces())?;
        for entry in fs::read_dir(stub.traces())? {
            let path = entry?.path();
            // Compiled kernels are kept, because their file names contain the hash of their code.
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name == "errors" || name == "nccl" || name.starts_with("trace.") {
                fs::remove_file(&path)?;
            }
        }
        let driver = fs::read_to_string(source.join("driver.c"))?;
        fs::write(library.join("unresolved.inc"), unresolved(&driver, &bindings()?))?;
        for file in ["ptx.h", "ptx_to_c.py"] {
            let text = fs::read(source.join(file))?;
            // Kernels compiled by another version of the translator are invalid.
            if fs::read(library.join(file)).is_ok_and(|before| before != text) {
                fs::remove_dir_all(stub.traces())?;
                fs::create_dir_all(stub.traces())?;
            }
            fs::write(library.join(file), text)?;
        }
        let compile = |file: &str, name: &str| {
            let mut command = Command::new("cc");
            command.args(["-O2", "-w", "-shared", "-fPIC", "-o"]).arg(library.join(name));
            command.arg(format!("-Wl,-soname,{name}")).arg("-I").arg(&library).arg("-L").arg(&library);
            command.arg(source.join(file));
            command
        };
        workspace::run(compile("driver.c", "libcuda.so.1").args(["-ldl", "-lpthread"]))?;
        workspace::run(compile("nccl.c", "libnccl.so.2").args(["-l:libcuda.so.1", "-lpthread"]))?;
        let libdevice = stub.toolkit().join("nvvm/libdevice/libdevice.10.bc");
        if !libdevice.exists() {
            let download = stub.folder.join("download");
            wheel::download(&[NVVM], &download)?;
            NVVM.unpack(&download, "nvidia/cu13", &stub.toolkit())?;
            fs::remove_dir_all(download)?;
        }
        Ok(stub)
    }

    /// Sets the environment variables with which a command runs on the stub, and returns the command.
    pub(crate) fn set<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.vars())
    }

    fn vars(&self) -> [(&'static str, PathBuf); 5] {
        [
            ("LD_LIBRARY_PATH", self.library()),
            ("CUDA_PATH", self.toolkit()),
            ("CUDA_STUB_DIR", self.traces()),
            ("CUDA_STUB_DEVICES", self.n_devices.to_string().into()),
            ("NCCL_STUB_TRACE", self.traces().join("nccl")),
        ]
    }

    fn library(&self) -> PathBuf {
        self.folder.join("lib")
    }

    fn toolkit(&self) -> PathBuf {
        self.folder.join("toolkit")
    }

    fn traces(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Returns a table with the number of launches of each kernel on each device since the stub was built.
    ///
    /// # Errors
    /// Returns an error if the stub ended a process, or if a kernel in `expected` was not launched.
    pub(crate) fn report(&self, expected: &[Kernel]) -> Result<String> {
        let errors = self.traces().join("errors");
        if errors.exists() {
            bail!("the stub driver ended a process: {}", fs::read_to_string(errors)?.trim());
        }
        let mut traces = String::new();
        for entry in fs::read_dir(self.traces())? {
            let path = entry?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("trace."))
            {
                traces += &fs::read_to_string(path)?;
            }
        }
        let launches = Launches::read(&traces);
        let missing: Vec<String> =
            expected.iter().filter(|kernel| !launches.has(kernel)).map(Kernel::to_string).collect();
        ensure!(missing.is_empty(), "kernels that were never launched on the stub: {}", missing.join(", "));
        Ok(launches.table())
    }
}

/// Returns the source file of the Rust bindings (cudarc) that declares all driver functions that the bindings may load.
fn bindings() -> Result<String> {
    let metadata = workspace::metadata()?;
    let cudarc = metadata.packages.iter().find(|package| package.name == "cudarc");
    let manifest = &cudarc.context("cudarc is not among the packages")?.manifest_path;
    let path = manifest.with_file_name("src/driver/sys/mod.rs");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// The text with which the bindings begin the definition of a function.
const FUNCTION: &str = concat!("pub ", "unsafe", " fn cu");

/// Returns a line for each function that the bindings may load and the stub does not define.
fn unresolved(driver: &str, bindings: &str) -> String {
    let name = |text: &str| {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("").to_owned()
    };
    let defined: BTreeSet<String> =
        driver.match_indices("Result cu").map(|(at, _)| name(&driver[at + 7..])).collect();
    let functions =
        bindings.match_indices(FUNCTION).map(|(at, _)| name(&bindings[at + FUNCTION.len() - 2..]));
    let missing: BTreeSet<String> =
        functions.filter(|name| name != "culib" && !defined.contains(name)).collect();
    missing.iter().map(|name| format!("UNRESOLVED({name})\n")).collect()
}

/// A kernel that kiln defines. Its name in a trace starts with `name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    name: String,
    /// The element type; `None` for kernels that are not generic in it.
    dtype: Option<&'static str>,
}

impl std::fmt::Display for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.dtype {
            Some(dtype) => write!(f, "{} of {dtype}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The kernels that run only on devices without planes, which CUDA devices have.
const WITHOUT_PLANES: [&str; 3] = ["chunk_sums", "sums_in_chunks", "store_values"];

/// Returns the kernels that the sources define for CUDA devices. A kernel that is generic in its element type counts
/// once per type.
pub(crate) fn own_kernels(files: &[SourceFile]) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/kernels/src/cube/")) {
        for (at, _) in file.text.match_indices("#[cube(launch") {
            let Some((_, rest)) = file.text[at..].split_once("\nfn ") else { continue };
            let (head, _) = rest.split_once('(').unwrap_or((rest, ""));
            let (name, generics) = head.split_once('<').unwrap_or((head, ""));
            // Segment sums have a kernel of the same name, which is generic.
            if WITHOUT_PLANES.contains(&name) && !generics.contains("F: Float") {
                continue;
            }
            let dtypes: &[_] = if generics.contains("F: Float") {
                &[Some("f32"), Some("f16"), Some("bf16")]
            } else {
                &[None]
            };
            kernels.extend(dtypes.iter().map(|dtype| Kernel { name: name.to_owned(), dtype: *dtype }));
        }
    }
    kernels
}

/// The numbers of launches, by the kernel's name in the trace without its hash, and by device.
#[derive(Debug, Default)]
struct Launches {
    by_kernel: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Launches {
    /// Parses the lines `SECONDS tTHREAD launch NAME_HASH HASH grid … qQUEUE dDEVICE …`.
    fn read(traces: &str) -> Self {
        let mut launches = Self::default();
        for line in traces.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, _, "launch", name, ..] = words[..] else { continue };
            let device = words
                .iter()
                .find(|word| word.strip_prefix('d').is_some_and(|number| number.parse::<usize>().is_ok()));
            let name = name.rsplit_once('_').map_or(name, |(name, _)| name).to_owned();
            let by_device = launches.by_kernel.entry(name).or_default();
            *by_device.entry(device.map_or("?", |device| device).to_owned()).or_default() += 1;
        }
        launches
    }

    fn has(&self, kernel: &Kernel) -> bool {
        let Kernel { name, dtype } = kernel;
        match dtype {
            Some(dtype) => {
                let start = format!("{name}_f_{dtype}");
                self.by_kernel.keys().any(|name| *name == start || name.starts_with(&format!("{start}_")))
            }
            // In a trace, `_n_` and the vector width may follow the kernel's name.
            None => {
                self.by_kernel.keys().any(|other| other == name || other.starts_with(&format!("{name}_n_")))
            }
        }
    }

    fn table(&self) -> String {
        let mut table = String::from("launches on the stub driver, by kernel and device:\n");
        for (name, by_device) in &self.by_kernel {
            let counts: Vec<String> = by_device.iter().map(|(device, n)| format!("{device} {n}")).collect();
            table += &format!("    {name:60} {}\n", counts.join("  "));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0.1 t1 alloc sync 512 d0\n\
        0.2 t1 launch segment_sum_f_f32_n_4_31710248 0123 grid 1 1 1 block 256 1 1 shared 0 q1 d0 ms 0.1\n\
        0.3 t2 launch segment_sum_f_f32_n_4_e6791316 0124 grid 1 1 1 block 256 1 1 shared 0 q2 d1 ms 0.1\n\
        0.4 t1 launch chunk_sums_adb3255e 0125 grid 1 1 1 block 256 1 1 shared 0 q1 d0 ms 0.1\n";

    fn kernel(name: &str, dtype: Option<&'static str>) -> Kernel {
        Kernel { name: name.to_owned(), dtype }
    }

    #[test]
    fn counts_launches_by_kernel_and_device() {
        let launches = Launches::read(TRACE);
        let of_sum = &launches.by_kernel["segment_sum_f_f32_n_4"];
        assert_eq!(
            of_sum.iter().map(|(device, n)| (device.as_str(), *n)).collect::<Vec<_>>(),
            [("d0", 1), ("d1", 1)]
        );
        assert!(launches.has(&kernel("segment_sum", Some("f32"))));
        assert!(!launches.has(&kernel("segment_sum", Some("f16"))));
        assert!(launches.has(&kernel("chunk_sums", None)));
        // The kernel of the same name with an element type was not launched.
        assert!(!launches.has(&kernel("chunk_sums", Some("f32"))));
    }

    #[test]
    fn finds_the_kernels_of_the_sources() {
        let text = "#[cube(launch)]\nfn empty(table: &mut [u32]) {\n}\n\
            #[cube(launch)]\nfn chunk_sums(values: &[u32]) {}\n\
            #[cube(launch, address_type = \"dynamic\")]\nfn gather<F: Float, N: Size>(\n) {}\n#[cube]\nfn helper() {}\n";
        let file = SourceFile { path: "crates/kernels/src/cube/a.rs".to_owned(), text: text.to_owned() };
        let expected = [kernel("empty", None)]
            .into_iter()
            .chain(["f32", "f16", "bf16"].map(|dtype| kernel("gather", Some(dtype))));
        assert_eq!(own_kernels(&[file]), expected.collect::<Vec<_>>());
    }

    #[test]
    fn lists_driver_functions_without_a_definition() {
        let driver = "Result cuInit(unsigned flags) { return SUCCESS; }";
        let bindings: String = ["Init(Flags: u32)", "GraphLaunch(a: b)", "lib()"]
            .map(|rest| format!("{FUNCTION}{rest}\n"))
            .concat();
        assert_eq!(unresolved(driver, &bindings), "UNRESOLVED(cuGraphLaunch)\n");
    }
}
