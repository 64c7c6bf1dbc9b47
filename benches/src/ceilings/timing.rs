use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// The number of passes of a measurement. The first one also maps the pages that are written.
const PASSES: usize = 5;

/// Returns the number of operations of a pass: `n`, or a small part of it in unit tests, which are not optimized.
pub(super) const fn per_pass(n: usize) -> usize {
    if cfg!(test) { n >> 8 } else { n }
}

/// Returns the best rate in units per second over several passes, each of which all threads start together. `start`
/// returns the function that a thread runs in each pass. In a pass, all threads together process `units` units.
pub(crate) fn best_rate<R: FnMut()>(
    n_threads: usize,
    units: usize,
    start: impl Fn(usize) -> R + Sync,
) -> f64 {
    let barrier = Barrier::new(n_threads);
    let run = |thread: usize| {
        let mut run = start(thread);
        (0..PASSES)
            .map(|_| {
                barrier.wait();
                let started = Instant::now();
                run();
                (started, Instant::now())
            })
            .collect::<Vec<_>>()
    };
    let spans: Vec<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..n_threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a pass should not panic")).collect()
    });
    let seconds = |pass: usize| {
        let of_pass = spans.iter().map(|of_thread| of_thread[pass]);
        let first = of_pass.clone().map(|(started, _)| started).min();
        let last = of_pass.map(|(_, ended)| ended).max();
        first.zip(last).map_or(f64::INFINITY, |(first, last)| (last - first).as_secs_f64())
    };
    (0..PASSES).map(|pass| units as f64 / seconds(pass)).fold(0.0, f64::max)
}
