//! `cargo xtask check`: the checks that a change must pass before it is submitted.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::workspace::{self, SourceFile};
use crate::{
    arrows, book, commits, cuda, cycles, features, llvm, log, manifest, messages, method_examples, names,
    prose, publish, python, style, test, third_party, tidy, tools,
};

/// Options of `cargo xtask check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs only these steps
    #[arg(value_name = "STEP", value_parser = clap::builder::PossibleValuesParser::new(STEPS.iter().map(|step| step.0)))]
    steps: Vec<String>,
    /// Checks the CUDA path instead, on a stub of the CUDA driver and with NVIDIA's assembler
    #[arg(long, conflicts_with = "steps")]
    cuda: bool,
    /// Writes the measured launches and resources of kernels to docs/kernels.md; for --cuda
    #[arg(long, requires = "cuda")]
    update: bool,
}

/// The name of a step, and the function that it runs.
type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("fmt", || workspace::run(workspace::cargo()?.args(["fmt", "--all", "--check"]))),
    ("clippy", clippy),
    ("docs", docs),
    ("arrows", || report(arrows::problems(&workspace::metadata()?))),
    ("cycles", || report(cycles::problems(&text_files()?))),
    ("features", || report(features::problems()?)),
    ("deny", tools::check_packages),
    ("third-party", || report(third_party::problems()?)),
    ("manifests", || report(manifest::problems(&text_files()?)?)),
    ("published", || report(publish::problems(&workspace::metadata()?))),
    ("package", || publish::package(&workspace::metadata()?)),
    ("alone", || publish::build_alone(&workspace::metadata()?)),
    ("example-length", || report(tidy::long_examples(&text_files()?))),
    ("file-length", || report(tidy::long_files(&text_files()?))),
    ("crate-length", || report(tidy::long_crates(&text_files()?))),
    ("type-names", || report(names::repeated_types(&text_files()?))),
    ("style", || report(style::habits(&text_files()?))),
    ("error-variants", || report(style::large_errors(&text_files()?))),
    ("kernel-rows", || report(cuda::table::missing_rows(&text_files()?))),
    ("addresses", || report(cuda::kernels::narrow_kernels(&text_files()?))),
    ("log", || report(log::problems(&text_files()?))),
    ("messages", || report(messages::rust_names(&text_files()?))),
    ("crate-docs", || report(tidy::crate_docs(&text_files()?))),
    ("method-examples", || report(method_examples::missing(&text_files()?))),
    ("unsafe", || report(tidy::stray_unsafe(&text_files()?))),
    ("ignored-tests", || report(tidy::ignored_tests(&text_files()?))),
    ("machine-paths", || report(tidy::machine_paths(&text_files()?))),
    ("fragments", || report(prose::fragments(&text_files()?))),
    ("phrases", || report(prose::banned_phrases(&text_files()?))),
    ("snippets", || report(prose::untested_snippets(&text_files()?))),
    ("book", || report(book::problems(&text_files()?))),
    ("commits", || report(commits::problems()?)),
    ("links", tools::check_links),
    ("python", python::check),
];

/// Runs all selected steps, also after a failure, and lists the failed steps at the end.
pub(crate) fn run(args: Args) -> Result<()> {
    if args.cuda {
        return cuda::check(args.update);
    }
    let start = Instant::now();
    let mut failed = Vec::new();
    for &(name, body) in STEPS {
        if !args.steps.is_empty() && !args.steps.iter().any(|step| step == name) {
            continue;
        }
        println!("==> {name}");
        let step_start = Instant::now();
        let result = body();
        let seconds = step_start.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("    ok, {seconds:.1} s"),
            Err(error) => {
                println!("    FAILED, {seconds:.1} s: {error:#}");
                failed.push(name);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    if !failed.is_empty() {
        bail!("{} failed, after {seconds:.0} s: {}", count(failed.len(), "step"), failed.join(", "));
    }
    println!("all steps passed in {seconds:.0} s");
    Ok(())
}

/// Lints with all features, whose code is that of the default features and more. `cargo xtask test --deny-warnings` finds
/// what the compiler says of the default features alone, such as an import that only another feature uses.
fn clippy() -> Result<()> {
    llvm::run()?;
    let mut clippy = workspace::cargo()?;
    clippy.args("clippy --profile tests --locked --workspace --all-targets --features".split(' '));
    workspace::run(clippy.args([test::all_features(), "--", "-D", "warnings"]))
}

/// Builds the documentation with the features of the lint, which has checked all dependencies.
fn docs() -> Result<()> {
    let mut doc = workspace::cargo()?;
    doc.args("doc --profile tests --locked --workspace --no-deps --features".split(' '))
        .arg(test::all_features());
    workspace::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn text_files() -> Result<Vec<SourceFile>> {
    workspace::text_files(&workspace::paths()?)
}

/// Prints each problem, and fails if there is one.
pub(crate) fn report(problems: Vec<String>) -> Result<()> {
    for problem in &problems {
        println!("    {problem}");
    }
    if !problems.is_empty() {
        bail!(count(problems.len(), "problem"));
    }
    Ok(())
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
