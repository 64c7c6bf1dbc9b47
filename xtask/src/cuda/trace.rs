//! The traces of the stub driver: a line per launch, copy and wait.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::kernels::Kernel;

/// The launches and waits of one process or several, each process in the order of its calls.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) calls: Vec<Call>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Call {
    Launch(Launch),
    /// A thread of the host waits for a queue, or for all queues of a device: `?`.
    Wait {
        queue: String,
    },
    /// Bytes are copied between the host and a device.
    Copy {
        queue: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Launch {
    /// The name without its hash.
    pub(super) kernel: String,
    /// The hash of the PTX.
    pub(super) module: String,
    pub(super) queue: String,
    pub(super) device: String,
    pub(super) n_cubes: u64,
    /// The number of units of a cube.
    pub(super) n_units: u64,
    /// The bytes of shared memory of a block.
    pub(super) shared: u32,
    /// Whether only the counted cubes were executed.
    pub(super) is_skipped: bool,
    /// The loads and the stores of device memory, if the stub counted them.
    pub(super) accesses: Option<[Accesses; 2]>,
    /// The largest amounts of work, if the stub counted them.
    pub(super) work: Option<Work>,
}

/// The largest amounts of work of one unit and of one cube, among the cubes in which the stub counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Work {
    /// The number of accesses to device memory of one unit. A vector is one access.
    pub(super) longest: u64,
    /// The number of accesses of one unit at one place of the code.
    pub(super) longest_site: u64,
    /// The bytes that one cube moves from and to device memory: 32 per sector that a warp touches.
    pub(super) n_bytes: u64,
    /// The floating-point operations of one cube. A fused multiply-add is two.
    pub(super) n_ops: u64,
}

/// The accesses of warps to device memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Accesses {
    /// The number of instructions, counted once per warp.
    pub(super) requests: u64,
    /// The number of 32-byte sectors that they touch.
    pub(super) sectors: u64,
}

impl Trace {
    /// Adds the calls of a process. Lines have the forms `SECONDS tTHREAD launch NAME_HASH MODULE grid X Y Z block X Y Z
    /// shared BYTES qQUEUE dDEVICE … [skipped] [longest N site N largest BYTES OPS read N requests N sectors … wrote N requests N
    /// sectors …]`, `SECONDS tTHREAD wait … qQUEUE` and `SECONDS tTHREAD copy … qQUEUE`. Other lines are ignored.
    pub(super) fn read(&mut self, text: &str) {
        self.calls.extend(text.lines().filter_map(|line| call(&line.split(' ').collect::<Vec<_>>())));
    }

    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.calls.iter().filter_map(|call| match call {
            Call::Launch(launch) => Some(launch),
            Call::Wait { .. } | Call::Copy { .. } => None,
        })
    }
}

fn call(words: &[&str]) -> Option<Call> {
    let [_, _, kind, name, ..] = *words else { return None };
    let numbered = |start: char| {
        words
            .iter()
            .find(|word: &&&str| word.strip_prefix(start).is_some_and(|n| n.parse::<u32>().is_ok()))
            .map_or_else(|| "?".to_owned(), |word| (*word).to_owned())
    };
    let queue = numbered('q');
    match kind {
        "wait" => Some(Call::Wait { queue }),
        "copy" => Some(Call::Copy { queue }),
        "launch" => Some(Call::Launch(Launch {
            kernel: name.rsplit_once('_').map_or(name, |(name, _)| name).to_owned(),
            module: (*words.get(4)?).to_owned(),
            queue,
            device: numbered('d'),
            n_cubes: product_after(words, "grid")?,
            n_units: product_after(words, "block")?,
            shared: number_after(words, "shared", 1)?,
            is_skipped: words.contains(&"skipped"),
            accesses: accesses(words, "read")
                .zip(accesses(words, "wrote"))
                .map(|(read, wrote)| [read, wrote]),
            work: work(words),
        })),
        _ => None,
    }
}

/// Returns the number that follows a word at a distance of `offset` words.
fn number_after<N: FromStr>(words: &[&str], word: &str, offset: usize) -> Option<N> {
    words.get(words.iter().position(|other| *other == word)? + offset)?.parse().ok()
}

/// Returns the product of the three numbers that follow a word.
fn product_after(words: &[&str], word: &str) -> Option<u64> {
    (1..=3).map(|offset| number_after::<u64>(words, word, offset)).product()
}

fn work(words: &[&str]) -> Option<Work> {
    Some(Work {
        longest: number_after(words, "longest", 1)?,
        longest_site: number_after(words, "site", 1)?,
        n_bytes: number_after(words, "largest", 1)?,
        n_ops: number_after(words, "largest", 2)?,
    })
}

fn accesses(words: &[&str], kind: &str) -> Option<Accesses> {
    Some(Accesses { requests: number_after(words, kind, 1)?, sectors: number_after(words, kind, 3)? })
}

/// The numbers of launches, by the kernel's name without its hash, and by device.
#[derive(Debug, Default)]
pub(super) struct Launches {
    by_kernel: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Launches {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut launches = Self::default();
        for launch in trace.launches() {
            let by_device = launches.by_kernel.entry(launch.kernel.clone()).or_default();
            *by_device.entry(launch.device.clone()).or_default() += 1;
        }
        launches
    }

    pub(super) fn has(&self, kernel: &Kernel) -> bool {
        self.by_kernel.keys().any(|name| kernel.is(name))
    }

    pub(super) fn table(&self) -> String {
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
        0.2 t1 launch segment_sum_f_f32_n_4_31710248 0123 grid 1 1 1 block 256 1 1 shared 64 q1 d0 ms 0.1\n\
        0.2 t1 wait event q1\n0.2 t1 copy h2d 512 q1\n\
        0.3 t2 launch segment_sum_f_f32_n_4_e6791316 0124 grid 3 2 1 block 32 4 1 shared 64 q2 d1 ms 0.1 skipped longest 9 site 6 largest 896 64 read 6 requests 24 sectors 768 bytes wrote 1 requests 4 sectors 128 bytes\n";

    #[test]
    fn reads_launches_and_waits() {
        let mut trace = Trace::default();
        trace.read(TRACE);
        let first = Launch {
            kernel: "segment_sum_f_f32_n_4".to_owned(),
            module: "0123".to_owned(),
            queue: "q1".to_owned(),
            device: "d0".to_owned(),
            n_cubes: 1,
            n_units: 256,
            shared: 64,
            is_skipped: false,
            accesses: None,
            work: None,
        };
        let second = Launch {
            module: "0124".to_owned(),
            queue: "q2".to_owned(),
            device: "d1".to_owned(),
            n_cubes: 6,
            n_units: 128,
            is_skipped: true,
            accesses: Some([Accesses { requests: 6, sectors: 24 }, Accesses { requests: 1, sectors: 4 }]),
            work: Some(Work { longest: 9, longest_site: 6, n_bytes: 896, n_ops: 64 }),
            ..first.clone()
        };
        let expected = [
            Call::Launch(first),
            Call::Wait { queue: "q1".to_owned() },
            Call::Copy { queue: "q1".to_owned() },
            Call::Launch(second),
        ];
        assert_eq!(trace.calls, expected);
    }

    #[test]
    fn counts_launches_by_kernel_and_device() {
        let mut trace = Trace::default();
        trace.read(TRACE);
        let launches = Launches::of(&trace);
        let of_sum = &launches.by_kernel["segment_sum_f_f32_n_4"];
        assert_eq!(
            of_sum.iter().map(|(device, n)| (device.as_str(), *n)).collect::<Vec<_>>(),
            [("d0", 1), ("d1", 1)]
        );
        let kernel = |dtype| Kernel { name: "segment_sum".to_owned(), dtype: Some(dtype) };
        assert!(launches.has(&kernel("f32")) && !launches.has(&kernel("f16")));
        assert!(launches.table().contains("segment_sum_f_f32_n_4"));
    }
}
