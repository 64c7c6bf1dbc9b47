//! Regression tests that compare the weights of short runs with recorded hashes. Sums depend on the vector width of the
//! processor, so each width has its own hashes.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;
use std::process::Command;

use serde_json::Value;

/// The flags of a run, and the recorded hashes of its weights with AVX-512 and with AVX2 only; `None` if no hash is
/// recorded for that vector width.
type Run = (&'static str, Option<&'static str>, Option<&'static str>);

const RUNS: [Run; 4] = [
    ("--epochs 1", None, Some("21fe42908cc3a2ac70ce3c231cacb38952827fb7f187559da6f3a525ced1c50b")),
    (
        "--epochs 1 --model gcn --layers 2 --fanouts 5 --hidden 64",
        None,
        Some("b7a49ffab59d932ca9d120968902fce53537020b2d59fc31fb63de5709a84c53"),
    ),
    (
        "--data mutag --epochs 3",
        None,
        Some("7d69ff6e06186447aa0f4905e747beac69c52fad8fe6906089926dc0bbce71a6"),
    ),
    (
        "--epochs 1 --ranks 2 --threads-per-rank 1 --batch-size 512",
        None,
        Some("e27ef65b61d6a7e2d0ac7a0b822880dfba9f873150cf74c013c0b85f605b076e"),
    ),
];

/// Returns true with AVX-512 and false with AVX2 only; `None` for processors without recorded hashes.
fn is_avx512() -> Option<bool> {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
        avx2.then(|| std::arch::is_x86_feature_detected!("avx512f"))
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[test]
fn weights_match_the_recorded_hashes() {
    let Some(is_avx512) = is_avx512() else {
        skip("kiln-skip: other: recorded weights: a processor without AVX2");
        return;
    };
    for (flags, avx512, avx2) in RUNS {
        let Some(expected) = (if is_avx512 { avx512 } else { avx2 }) else {
            skip("kiln-skip: other: recorded weights: none for AVX-512");
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("run");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let output = command.arg("train").args(flags.split(' ')).arg("--out").arg(&out).output().unwrap();
        assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
        let summary = std::fs::read_to_string(out.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(summary["weights_hash"], expected, "{flags}");
    }
}

/// Prints a line about a skipped test, without `println!`, whose output the test harness captures.
fn skip(line: &str) {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").unwrap();
}
