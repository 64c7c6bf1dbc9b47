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
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::kernels::{self, Kernel};
use super::toolkit;
use super::trace::{Launches, Trace};
use crate::workspace;

/// Options of `cargo xtask cuda-stub`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of devices that the stub reports
    #[arg(long, default_value = "2")]
    pub(super) devices: usize,
    /// Measures a step of these models, or of all, at the shape of ogbn-products, with the program that was built for the tests
    #[arg(long, value_name = "MODEL", num_args = 0.., conflicts_with = "command")]
    pub(super) steps: Option<Vec<String>>,
    /// The program and its arguments; without a program, prints the environment variables to set
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// The folder of the stub, its traces, and the parts of the CUDA toolkit.
const FOLDER: &str = "target/cuda-stub";

/// The line of a kernel's PTX that names an H200.
const OF_H200: &str = ".target sm_90a";

/// The name of the toolkit's folder in [`FOLDER`].
const TOOLKIT: &str = "toolkit";

/// The built stub: the folder with its libraries and traces, and the number of devices that it reports.
#[derive(Debug)]
pub(crate) struct Stub {
    folder: PathBuf,
    n_devices: usize,
}

/// Installs `libdevice`, unless it is there, and returns the folder of the toolkit that contains it.
///
/// # Errors
/// Returns an error if `libdevice` cannot be downloaded.
pub(crate) fn install_libdevice() -> Result<PathBuf> {
    let toolkit = workspace::root()?.join(FOLDER).join(TOOLKIT);
    toolkit::install_libdevice(&toolkit)?;
    Ok(toolkit)
}

/// Builds the stub and runs a command on it.
pub(super) fn run(args: &Args) -> Result<()> {
    let stub = Stub::build(args.devices)?;
    let [program, rest @ ..] = &args.command[..] else {
        for (name, value) in stub.vars() {
            println!("export {name}={}", value.display());
        }
        return Ok(());
    };
    let outcome = workspace::run(stub.set(Command::new(program).args(rest)));
    print!("{}", stub.report(false)?);
    outcome
}

impl Stub {
    /// Compiles the libraries and installs `libdevice`, below `target/cuda-stub`. Removes the traces of earlier runs.
    ///
    /// # Errors
    /// Returns an error if the libraries cannot be compiled, or if `libdevice` is missing and cannot be downloaded.
    pub(crate) fn build(n_devices: usize) -> Result<Self> {
        let root = workspace::root()?;
        let stub = Self { folder: root.join(FOLDER), n_devices };
        let source = root.join("xtask/cuda_stub");
        let library = stub.library();
        fs::create_dir_all(&library)?;
        fs::create_dir_all(stub.traces())?;
        if stub.cache().exists() {
            fs::remove_dir_all(stub.cache())?;
        }
        for entry in fs::read_dir(stub.traces())? {
            let path = entry?.path();
            // Compiled kernels are kept, because their file names contain the hash of their code. Those for partial warps
            // show which kernels were launched with them.
            if path.ends_with("errors") || path.ends_with("nccl") || is_trace(&path) || is_partial(&path) {
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
        compile(&source, &library)?;
        toolkit::install_libdevice(&stub.toolkit())?;
        Ok(stub)
    }

    /// Sets the environment variables with which a command runs on the stub, and returns the command.
    pub(crate) fn set<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for name in ["ARCH", "PARTIAL_WARPS", "SECTORS", "SKIP", "TRACE"] {
            command.env_remove(format!("CUDA_STUB_{name}"));
        }
        command.envs(self.vars())
    }

    fn vars(&self) -> [(&'static str, PathBuf); 6] {
        [
            // Compiled kernels are kept here, not among those of the user.
            ("XDG_CACHE_HOME", self.cache()),
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

    /// Returns the folder of the kernels that CubeCL has compiled to PTX.
    fn cache(&self) -> PathBuf {
        self.folder.join("cache")
    }

    fn traces(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Returns the folder for the results of model runs.
    pub(super) fn models(&self) -> PathBuf {
        self.folder.join("models")
    }

    /// Returns the folder of the parts of the CUDA toolkit.
    pub(super) fn toolkit(&self) -> PathBuf {
        self.folder.join(TOOLKIT)
    }

    /// Returns the path of the PTX of a kernel that was loaded.
    pub(super) fn ptx(&self, module: &str) -> PathBuf {
        self.traces().join(module).with_extension("ptx")
    }

    /// Returns the traces of all processes since the stub was built.
    ///
    /// # Errors
    /// Returns an error if the stub ended a process.
    pub(super) fn read_traces(&self) -> Result<Trace> {
        let errors = self.traces().join("errors");
        if errors.exists() {
            bail!("the stub driver ended a process: {}", fs::read_to_string(errors)?.trim());
        }
        let mut traces = Trace::default();
        for entry in fs::read_dir(self.traces())? {
            let path = entry?.path();
            if is_trace(&path) {
                traces.read(&fs::read_to_string(path)?);
            }
        }
        Ok(traces)
    }

    /// Returns a table with the number of launches of each kernel on each device since the stub was built.
    ///
    /// # Errors
    /// Returns an error if the stub ended a process. If `needs_all` is true, also returns an error if one of kiln's kernels
    /// was not launched, or was not launched with partial warps although they may change its results.
    pub(crate) fn report(&self, needs_all: bool) -> Result<String> {
        let trace = self.read_traces()?;
        let launches = Launches::of(&trace);
        if needs_all {
            let own = kernels::own()?;
            let missing = own.iter().filter(|kernel| !launches.has(kernel)).map(ToString::to_string);
            let missing: Vec<String> = missing.collect();
            ensure!(
                missing.is_empty(),
                "kernels that were never launched on the stub: {}",
                missing.join(", ")
            );
            let whole = self.never_with_partial_warps(&trace, &own)?;
            ensure!(
                whole.is_empty(),
                "kernels with operations of warps that were never launched with partial warps: {}; add one of their tests \
                 to PARTIAL_WARPS_TESTS in xtask/src/test.rs",
                whole.join(", ")
            );
        }
        Ok(launches.table())
    }

    /// Returns the kernels in `own` whose results may depend on partial warps, because they read the mask of the active
    /// lanes, and of which a variant was never launched with them. The stub compiles such kernels once more for partial
    /// warps, and runs all others as they are. Variants for an A100 do not count: tests with partial warps run as an H200.
    fn never_with_partial_warps(&self, trace: &Trace, own: &[Kernel]) -> Result<Vec<String>> {
        let modules: BTreeMap<&str, &str> =
            trace.launches().map(|launch| (&*launch.module, &*launch.kernel)).collect();
        let mut whole = BTreeSet::new();
        for (module, kernel) in modules {
            let Some(kernel) = kernels::find(own, kernel) else { continue };
            let ptx = self.ptx(module);
            let text = fs::read_to_string(&ptx).with_context(|| format!("cannot read {}", ptx.display()))?;
            if text.contains(OF_H200)
                && text.contains("activemask")
                && !ptx.with_extension("partial.so").exists()
            {
                whole.insert(format!("{kernel} ({module})"));
            }
        }
        Ok(whole.into_iter().collect())
    }
}

/// Compiles the driver and NCCL from the folder of the sources to the folder of the libraries, which contains `ptx.h` and
/// `unresolved.inc`.
fn compile(source: &Path, library: &Path) -> Result<()> {
    let compile = |files: &[&str], name: &str| {
        let mut command = Command::new("cc");
        command.args(["-O2", "-w", "-shared", "-fPIC", "-o"]).arg(library.join(name));
        command.arg(format!("-Wl,-soname,{name}")).arg("-I").arg(library).arg("-L").arg(library);
        command.args(files.iter().map(|file| source.join(file)));
        command
    };
    workspace::run(compile(&["driver.c", "runtime.c"], "libcuda.so.1").args(["-ldl", "-lpthread", "-lm"]))?;
    workspace::run(compile(&["nccl.c"], "libnccl.so.2").args(["-l:libcuda.so.1", "-lpthread"]))
}

/// Returns true for a kernel that was compiled for partial warps.
fn is_partial(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(".partial.so"))
}

fn is_trace(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("trace."))
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

#[cfg(test)]
mod tests;
