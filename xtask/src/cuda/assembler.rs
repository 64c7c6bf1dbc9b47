//! NVIDIA's assembler, which reports the registers and the local memory of a kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::kernels::Kernel;

/// A kind of GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arch {
    pub(super) name: &'static str,
    /// The bytes of shared memory of a multiprocessor.
    shared: u32,
}

/// The GPUs that kernels are assembled for: H100 and H200, and A100.
pub(super) const ARCHS: [Arch; 2] =
    [Arch { name: "sm_90a", shared: 233_472 }, Arch { name: "sm_80", shared: 167_936 }];

/// What a kernel uses of a multiprocessor.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) registers: u32,
    /// The bytes that are moved to and from memory because registers do not suffice.
    pub(super) spills: u32,
    /// The bytes of local memory of a thread, spills included.
    pub(super) stack: u32,
    /// The number of warps that a multiprocessor holds at once.
    pub(super) warps: u32,
}

/// A spill that the assembler chooses and that costs little.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedSpill {
    /// The name of the kernel with its element type.
    pub(super) kernel: &'static str,
    pub(super) arch: &'static str,
    /// The largest number of bytes that a thread stores and loads.
    pub(super) n_bytes: u32,
    /// The bytes of local memory that a thread has for them.
    pub(super) stack: u32,
}

/// What the variants of a kernel use: the largest numbers, and the smallest number of warps, for each of [`ARCHS`].
pub(super) type KernelUsage = [Usage; ARCHS.len()];

/// A kernel's code: a file of PTX, and what the launches of it determine.
#[derive(Debug, Clone)]
pub(super) struct Module<'a> {
    pub(super) ptx: PathBuf,
    pub(super) kernel: &'a Kernel,
    /// The bytes of shared memory of a block.
    pub(super) shared: u32,
}

/// Assembles modules on all cores, each for all of [`ARCHS`]. Returns what each kernel uses, and a message for each kernel
/// that is rejected, was not generated for one of [`ARCHS`], or uses local memory for anything but an accepted spill.
///
/// A module names the kind of GPU for which it was generated. If its elements are not of half precision, only this name
/// is replaced for the other kinds. That is right because CubeCL and LLVM generate the same text for all of them: these
/// kernels use no instruction that one of the kinds lacks, and no property of a device by which CubeCL would choose another
/// variant. Modules that were generated for another kind are compared with the replaced texts, so that a kernel that begins
/// to depend on the kind is reported.
pub(super) fn assemble_all(
    ptxas: &Path,
    modules: &[Module<'_>],
    accepted: &[AcceptedSpill],
) -> Result<(BTreeMap<String, KernelUsage>, Vec<String>)> {
    let (texts, mut problems) = texts_by_arch(modules)?;
    let n_threads = std::thread::available_parallelism()?.get();
    let of_part = |part: &[Text<'_>]| -> Vec<_> { part.iter().map(|text| assemble(ptxas, text)).collect() };
    let assembled: Vec<Result<Usage>> = std::thread::scope(|scope| {
        let parts = texts.chunks(texts.len().div_ceil(n_threads).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || of_part(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("assembling should not panic")).collect()
    });
    let mut kernels = BTreeMap::<String, KernelUsage>::new();
    for (Text { module: Module { kernel, .. }, arch, .. }, assembled) in texts.iter().zip(assembled) {
        let of_kernel = kernels.entry(kernel.to_string()).or_default();
        match assembled {
            Ok(usage) => {
                of_kernel[*arch] = of_kernel[*arch].max(usage);
                let name = kernel.to_string();
                let arch_name = ARCHS[*arch].name;
                let spill = accepted.iter().find(|spill| spill.kernel == name && spill.arch == arch_name);
                let problem = usage.problem(spill.map_or((0, 0), |spill| (spill.n_bytes, spill.stack)));
                problems.extend(problem.map(|problem| format!("{kernel} for {arch_name}: {problem}")));
            }
            Err(error) => {
                problems.insert(format!("{kernel}: {error:#}"));
            }
        }
    }
    for (name, usages) in &kernels {
        let missing = ARCHS.iter().zip(usages).filter(|(_, usage)| usage.registers == 0);
        problems.extend(missing.map(|(arch, _)| format!("{name}: not assembled for {}", arch.name)));
    }
    Ok((kernels, problems.into_iter().collect()))
}

/// The code of a module for a kind of GPU.
struct Text<'a> {
    module: &'a Module<'a>,
    /// The position in [`ARCHS`].
    arch: usize,
    ptx: String,
}

/// Returns the code of each module for the kind of GPU that it names, and that of modules for the first of [`ARCHS`], if
/// they are not of half precision, for all kinds. Modules for another kind that are not of half precision must be equal to
/// one of these, apart from the name of the kind: a message is returned for each that is not, and for each that names an
/// unknown kind.
fn texts_by_arch<'a>(modules: &'a [Module<'a>]) -> Result<(Vec<Text<'a>>, BTreeSet<String>)> {
    let mut texts = Vec::new();
    let mut others = Vec::new();
    let mut problems = BTreeSet::new();
    for module in modules {
        let ptx = fs::read_to_string(&module.ptx)
            .with_context(|| format!("cannot read {}", module.ptx.display()))?;
        let target = ptx.lines().find_map(|line| line.strip_prefix(".target ")).unwrap_or_default().trim();
        let Some(arch) = ARCHS.iter().position(|arch| arch.name == target) else {
            problems.insert(format!("{}: `{}` is for `{target}`", module.kernel, module.ptx.display()));
            continue;
        };
        if module.kernel.is_of_half_precision() {
            texts.push(Text { module, arch, ptx });
        } else if arch == 0 {
            texts.extend((0..ARCHS.len()).map(|arch| Text {
                module,
                arch,
                ptx: replace_target(&ptx, ARCHS[0], ARCHS[arch]),
            }));
        } else {
            others.push(Text { module, arch, ptx });
        }
    }
    for Text { module: Module { kernel, ptx: path, .. }, arch, ptx } in others {
        if !texts.iter().any(|text| text.arch == arch && text.ptx == ptx) {
            problems.insert(format!(
                "{kernel}: {} is not the code for {} with another target, so the tests of this kernel must run on both",
                path.display(),
                ARCHS[0].name
            ));
        }
    }
    Ok((texts, problems))
}

fn replace_target(ptx: &str, from: Arch, to: Arch) -> String {
    let line = |arch: Arch| format!(".target {}\n", arch.name);
    ptx.replacen(&line(from), &line(to), 1)
}

impl Usage {
    /// Returns the larger number of each resource, and the smaller number of warps.
    fn max(self, other: Self) -> Self {
        let warps = if self.warps == 0 { other.warps } else { self.warps.min(other.warps) };
        Self {
            registers: self.registers.max(other.registers),
            spills: self.spills.max(other.spills),
            stack: self.stack.max(other.stack),
            warps,
        }
    }

    /// Returns a message if more bytes are spilled, or the stack is larger, than accepted.
    fn problem(self, (spills, stack): (u32, u32)) -> Option<String> {
        if spills < self.spills {
            return Some(format!("{} bytes are spilled, {spills} accepted", self.spills));
        }
        (stack < self.stack).then(|| format!("{} bytes of local memory, {stack} accepted", self.stack))
    }
}

/// Assembles the code of a module, and returns what the kernel uses.
///
/// # Errors
/// Returns an error with the assembler's message if it rejects the kernel.
fn assemble(ptxas: &Path, Text { module, arch, ptx }: &Text<'_>) -> Result<Usage> {
    let arch = ARCHS[*arch];
    let path = module.ptx.with_extension(format!("{}.ptx", arch.name));
    fs::write(&path, ptx).with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = Command::new(ptxas);
    command.arg(format!("-arch={}", arch.name)).args(["-v", "-o", "/dev/null"]).arg(&path);
    let output = command.output().context("cannot start ptxas")?;
    fs::remove_file(&path)?;
    let report = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("rejected for {}: {}", arch.name, report.lines().next().unwrap_or_default());
    }
    let usage = usage(&report, n_threads(ptx), module.shared, arch);
    usage.with_context(|| format!("unknown report of ptxas: {report}"))
}

/// Returns the number of threads of a block, which the PTX declares for each axis.
fn n_threads(ptx: &str) -> u32 {
    let declared = ptx.lines().find_map(|line| {
        let line = line.trim_start();
        line.strip_prefix(".reqntid ").or_else(|| line.strip_prefix(".maxntid "))
    });
    let axes = declared.unwrap_or("1").split(',');
    axes.map(|n| n.trim().trim_end_matches('{').trim().parse::<u32>().unwrap_or(1)).product()
}

/// Parses the assembler's report. Returns `None` if a number is missing.
fn usage(report: &str, n_threads: u32, shared: u32, arch: Arch) -> Option<Usage> {
    let before = |unit: &str| -> Option<u32> {
        let (head, _) = report.split_once(unit)?;
        head.rsplit(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?.parse().ok()
    };
    let registers = before(" registers")?;
    let spills = before(" bytes spill stores")? + before(" bytes spill loads")?;
    let warps = warps(registers, shared, n_threads, arch);
    Some(Usage { registers, spills, stack: before(" bytes stack frame")?, warps })
}

/// Returns the number of warps that a multiprocessor holds: it has 65,536 registers, allocated to warps in units of 256,
/// and at most 64 warps in at most 32 blocks. Each block takes 1 KiB of shared memory besides its own.
fn warps(registers: u32, shared: u32, n_threads: u32, arch: Arch) -> u32 {
    let warps_per_block = n_threads.div_ceil(32).max(1);
    let registers_per_block = (32 * registers).next_multiple_of(256) * warps_per_block;
    let blocks = (65_536 / registers_per_block.max(1)).min(arch.shared / (shared + 1024));
    blocks.min(32).min(64 / warps_per_block) * warps_per_block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_report_of_the_assembler() {
        let report = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'a' for 'sm_90a'\n\
            ptxas info    : Function properties for a\n    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size\n";
        let threads = n_threads(".visible .entry a(\n.reqntid 256, 1, 1\n{");
        assert_eq!(threads, 256);
        let expected = Usage { registers: 40, spills: 12, stack: 16, warps: 48 };
        assert_eq!(usage(report, threads, 1024, ARCHS[0]), Some(expected));
        assert_eq!(usage("ptxas info : nothing", 1, 0, ARCHS[0]), None);
    }

    #[test]
    fn spills_and_local_memory_are_problems_unless_accepted() {
        let usage = Usage { registers: 32, spills: 0, stack: 0, warps: 64 };
        assert_eq!(usage.problem((0, 0)), None);
        let with_local = Usage { stack: 16, ..usage };
        assert_eq!(with_local.problem((0, 0)).unwrap(), "16 bytes of local memory, 0 accepted");
        let spilled = Usage { spills: 8, stack: 8, ..usage };
        assert_eq!(spilled.problem((8, 8)), None);
        assert_eq!(spilled.problem((4, 8)).unwrap(), "8 bytes are spilled, 4 accepted");
        let both = Usage { spills: 8, stack: 1032, ..usage };
        assert_eq!(both.problem((8, 8)).unwrap(), "1032 bytes of local memory, 8 accepted");
        let largest = Usage::default().max(Usage { warps: 48, ..usage }).max(with_local);
        assert_eq!(largest, Usage { registers: 32, spills: 0, stack: 16, warps: 48 });
    }

    /// The assembler is a script that reports a spill for one kind of GPU and rejects the kernel for the other.
    #[test]
    #[cfg(unix)]
    fn rejected_kernels_and_spills_are_reported_by_kernel() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let script = "#!/bin/sh\ncase $1 in *sm_80) echo 'unknown instruction' >&2; exit 1;; esac\n\
            echo '8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads' >&2\necho 'Used 20 registers' >&2\n";
        fs::write(path("ptxas"), script).unwrap();
        fs::set_permissions(path("ptxas"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(path("a.ptx"), ".target sm_90a\n.reqntid 256, 1, 1\n").unwrap();
        let kernel = Kernel { name: "pick".to_owned(), dtype: None };
        let module = Module { ptx: path("a.ptx"), kernel: &kernel, shared: 0 };
        let (kernels, problems) = assemble_all(&path("ptxas"), &[module], &[]).unwrap();
        let expected = [
            "pick for sm_90a: 8 bytes are spilled, 0 accepted",
            "pick: not assembled for sm_80",
            "pick: rejected for sm_80: unknown instruction",
        ];
        assert_eq!(problems, expected);
        assert_eq!(kernels["pick"].map(|usage| usage.registers), [20, 0]);
    }

    #[test]
    fn code_for_another_gpu_is_that_for_the_first_with_the_target_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = |dtype| Kernel { name: "gather".to_owned(), dtype };
        let single = kernel(Some("f32"));
        let half = kernel(Some("f16"));
        let module = |name: &str, text: &str, kernel| {
            let ptx = folder.path().join(name);
            fs::write(&ptx, text).unwrap();
            Module { ptx, kernel, shared: 0 }
        };
        let modules = [
            module("a.ptx", ".target sm_90a\nadd.f32;\n", &single),
            module("b.ptx", ".target sm_80\nadd.f32;\n", &single),
            module("c.ptx", ".target sm_80\nsub.f32;\n", &single),
            module("d.ptx", ".target sm_75\n", &single),
            module("e.ptx", ".target sm_90a\nadd.f16;\n", &half),
            module("f.ptx", ".target sm_80\ncvt.f32.f16;\n", &half),
        ];
        let (texts, problems) = texts_by_arch(&modules).unwrap();
        let generated: Vec<_> = texts.iter().map(|text| (text.arch, &*text.ptx)).collect();
        let expected = [
            (0, ".target sm_90a\nadd.f32;\n"),
            (1, ".target sm_80\nadd.f32;\n"),
            (0, ".target sm_90a\nadd.f16;\n"),
            (1, ".target sm_80\ncvt.f32.f16;\n"),
        ];
        assert_eq!(generated, expected);
        let problems: Vec<String> = problems.into_iter().collect();
        let [differs, unknown] = &problems[..] else { panic!("{problems:?}") };
        assert!(differs.contains("c.ptx is not the code for sm_90a with another target"), "{differs}");
        assert!(unknown.contains("d.ptx` is for `sm_75`"), "{unknown}");
    }

    #[test]
    fn registers_shared_memory_and_blocks_limit_the_warps() {
        assert_eq!(warps(16, 0, 256, ARCHS[0]), 64);
        assert_eq!(warps(128, 0, 256, ARCHS[0]), 16);
        assert_eq!(warps(16, 100_000, 256, ARCHS[0]), 16);
        assert_eq!(warps(16, 100_000, 256, ARCHS[1]), 8);
        assert_eq!(warps(16, 0, 32, ARCHS[0]), 32);
    }
}
