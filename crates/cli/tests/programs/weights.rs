//! Regression tests that compare the weights of short runs with recorded hashes. Sums depend on the vector width of the
//! processor, so each width has its own hashes.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;
use std::process::Command;

use serde_json::Value;

/// The flags of a run, and the recorded hashes of its weights. The program of the README, whose hash was recorded on an
/// Intel processor with AVX-512, has the same hash on the AMD processor on which `avx512` was recorded.
struct Run {
    flags: &'static str,
    avx512: &'static str,
    /// The hash on processors with AVX2 only.
    avx2: &'static str,
}

const RUNS: [Run; 4] = [
    Run {
        flags: "--epochs 1",
        avx512: "b3bea326b9fc53e20a4a5fdc3f72b0698b696533164c6fdf9f751b4c41c9748b",
        avx2: "21fe42908cc3a2ac70ce3c231cacb38952827fb7f187559da6f3a525ced1c50b",
    },
    Run {
        flags: "--epochs 1 --model gcn --layers 2 --fanouts 5 --hidden 64",
        avx512: "bb2c5dcefe29fbde7cdb666ab4bfad42289e343733ed7e8f0ce4d342e1432ae2",
        avx2: "b7a49ffab59d932ca9d120968902fce53537020b2d59fc31fb63de5709a84c53",
    },
    Run {
        flags: "--data mutag --epochs 3",
        avx512: "62c5d6d81a46c1ddabea1e1cd6d65df9a3b41ac74d3efeeffc38d698d5a23812",
        avx2: "7d69ff6e06186447aa0f4905e747beac69c52fad8fe6906089926dc0bbce71a6",
    },
    Run {
        flags: "--epochs 1 --ranks 2 --threads-per-rank 1 --batch-size 512",
        avx512: "38f42bc4a0a3412886cd4a5aa63316d50b4890147ec90f2bd75a7f903da31ef9",
        avx2: "e27ef65b61d6a7e2d0ac7a0b822880dfba9f873150cf74c013c0b85f605b076e",
    },
];

/// Returns true with AVX-512 and false with AVX2 only; `None` for other processors.
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
        // The test harness captures the output of `println!`.
        writeln!(std::io::stdout(), "kiln-skip: cpu: recorded weights: a processor without AVX2").unwrap();
        return;
    };
    for Run { flags, avx512, avx2 } in RUNS {
        let expected = if is_avx512 { avx512 } else { avx2 };
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
