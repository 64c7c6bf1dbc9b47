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
    /// The bytes of shared memory of a block.
    pub(super) shared: u32,
    /// The loads and the stores of device memory, if the stub counted them.
    pub(super) accesses: Option<[Accesses; 2]>,
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
    /// Adds the calls of a process. Lines have the forms `SECONDS tTHREAD launch NAME_HASH MODULE … shared BYTES
    /// qQUEUE dDEVICE … [read N requests N sectors … wrote N requests N sectors …]`, `SECONDS tTHREAD wait … qQUEUE` and
    /// `SECONDS tTHREAD copy … qQUEUE`. Other lines are ignored.
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
        let is_number = |word: &&&str| word.strip_prefix(start).is_some_and(|n| n.parse::<u32>().is_ok());
        words.iter().find(is_number).map_or_else(|| "?".to_owned(), |word| (*word).to_owned())
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
            shared: number_after(words, "shared", 1)?,
            accesses: accesses(words, "read")
                .zip(accesses(words, "wrote"))
                .map(|(read, wrote)| [read, wrote]),
        })),
        _ => None,
    }
}

/// Returns the number that follows a word at a distance of `offset` words.
fn number_after<N: FromStr>(words: &[&str], word: &str, offset: usize) -> Option<N> {
    words.get(words.iter().position(|other| *other == word)? + offset)?.parse().ok()
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
        0.3 t2 launch segment_sum_f_f32_n_4_e6791316 0124 grid 1 1 1 block 256 1 1 shared 64 q2 d1 ms 0.1 read 6 requests 24 sectors 768 bytes wrote 1 requests 4 sectors 128 bytes\n";

    #[test]
    fn reads_launches_and_waits() {
        let mut trace = Trace::default();
        trace.read(TRACE);
        let launch = |module: &str, queue: &str, device: &str, accesses| Launch {
            kernel: "segment_sum_f_f32_n_4".to_owned(),
            module: module.to_owned(),
            queue: queue.to_owned(),
            device: device.to_owned(),
            shared: 64,
            accesses,
        };
        let (read, wrote) = (Accesses { requests: 6, sectors: 24 }, Accesses { requests: 1, sectors: 4 });
        let expected = [
            Call::Launch(launch("0123", "q1", "d0", None)),
            Call::Wait { queue: "q1".to_owned() },
            Call::Copy { queue: "q1".to_owned() },
            Call::Launch(launch("0124", "q2", "d1", Some([read, wrote]))),
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
