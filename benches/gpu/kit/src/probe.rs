//! `kit expect` and `kit probe`: the results of the fixed cases, computed on the CPU where the programs are packed, and
//! compared on the GPU.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use kiln_benches::Result;
use kiln_kernels::testing::device;

use crate::cases::cases;
use crate::outcome::Outcome;

/// Writes the result of each case on the device, which for expected results is the CPU, to a JSON file.
///
/// # Errors
/// Returns an error if a case fails or the file cannot be written.
pub(crate) fn write(file: &Path) -> Result {
    let device = device();
    let mut expected = BTreeMap::new();
    for case in cases() {
        expected.insert(case.name.clone(), (case.run)(&device)?);
    }
    fs::write(file, serde_json::to_string(&expected)?)?;
    println!("{} cases", expected.len());
    Ok(())
}

/// Compares the result of each case on the device with the one in a JSON file, and prints a line for each case that
/// differs. A case that panics does not end the others.
///
/// # Errors
/// Returns an error if a case differs or is not in the file, or if the file has other cases.
pub(crate) fn compare(file: &Path) -> Result {
    let expected: BTreeMap<String, Outcome> = serde_json::from_slice(&fs::read(file)?)?;
    let device = device();
    let mut n_equal = 0;
    let mut failed = Vec::new();
    for case in cases() {
        let result = catch_unwind(AssertUnwindSafe(|| -> Result {
            let wanted = expected.get(&case.name).ok_or("no expected result: pack again")?;
            (case.run)(&device)?.check(wanted)
        }));
        match result {
            Ok(Ok(())) => n_equal += 1,
            Ok(Err(error)) => failed.push(format!("{}: {error}", case.name)),
            Err(_) => failed.push(format!("{}: the case panicked", case.name)),
        }
    }
    for line in &failed {
        println!("differs: {line}");
    }
    println!("cases: {n_equal} of {} equal", expected.len());
    if n_equal != expected.len() || !failed.is_empty() {
        return Err(format!("{} cases differ", expected.len().max(n_equal + failed.len()) - n_equal).into());
    }
    Ok(())
}
