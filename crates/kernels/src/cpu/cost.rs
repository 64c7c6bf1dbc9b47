//! The decision whether a loop runs in the calling thread or on all threads of rayon's pool.
//!
//! Waking a sleeping thread takes as long as a small loop. So the time of each loop is estimated from its number of
//! values or multiplications and the time of one of them, and the loop runs in parallel if the other threads save more
//! time than it takes to wake them. The decision affects run time only: how a sum is divided depends on the shapes alone, so
//! results are bit-identical for all decisions.
//!
//! All times are in nanoseconds of one thread. `docs/benchmarks/kernel-costs.md` has the measurements and the machine.
//! Times on other processors are unknown. Where loops take twice as long but waking does not, loops between half the limit
//! and the limit run alone although they would be faster in parallel.

/// The time of waking another thread if the calling thread belongs to the pool. It works while the other thread wakes,
/// so it loses half of the 40 us that pass until the other thread helps.
const WAKE_NS: f64 = 20_000.0;

/// The time of waking the pool's threads if the calling thread does not belong to the pool. It sleeps during the loop,
/// so the first of the pool's threads wakes before any work is done, and the calling thread at the end.
const ENTER_NS: f64 = 40_000.0;

/// The time that a loop must save, as a multiple of the time of waking the other threads. Other programs or a worker of
/// the loader may use their cores.
const MARGIN: f64 = 1.5;

/// The time of a task of a loop over values. A loop with many tasks balances well, if other programs slow some
/// threads down.
const TASK_NS: f64 = 16_000.0;

/// The time of a multiplication and addition in a product of at least [`LANES`] columns in f32. Products in bf16 take
/// about half of it, and run in parallel from the same size on.
const PRODUCT_NS: f64 = 0.018;

/// The number of columns that a product computes together. The time of narrower products is that of this many columns.
const LANES: usize = 16;

/// The time of an edge in a sum over edges, besides that of its columns.
const EDGE_NS: f64 = 2.5;

/// The time of a column of an edge in a sum over edges.
const COLUMN_NS: f64 = 0.05;

/// The time of a value in a loop with little arithmetic over one or two arrays: a copy, ReLU, a sum.
pub(super) const PASS_NS: f64 = 0.09;

/// The time of a value in a decayed mean of Adam.
pub(super) const MEAN_NS: f64 = 0.15;

/// The time of a value that needs a root and a quotient: Adam's parameters.
pub(super) const ROOT_NS: f64 = 0.57;

/// The time of a value whose mask is drawn together with those of its row.
pub(super) const MASK_NS: f64 = 5.0;

/// The time of a value that needs an exponential function.
pub(super) const EXP_NS: f64 = 2.7;

/// The time of a value with a draw of its own.
pub(super) const DRAW_NS: f64 = 14.0;

/// Returns the time of an edge, or of a row, with `width` columns in a loop over edges.
pub(super) fn edge_ns(width: usize) -> f64 {
    EDGE_NS + width as f64 * COLUMN_NS
}

/// Returns the time of a row of a product, or of a row of both operands of a weight gradient, for weights of this
/// shape.
pub(super) fn product_row_ns(d_in: usize, d_out: usize) -> f64 {
    d_in as f64 * d_out.next_multiple_of(LANES) as f64 * PRODUCT_NS
}

/// Returns true if a loop is faster on all threads of the current pool. `total_ns` is the estimated time of the loop on
/// one thread, and `longest_ns` that of its longest task.
pub(super) fn is_parallel(total_ns: f64, longest_ns: f64) -> bool {
    let wake_ns = if rayon::current_thread_index().is_some() { WAKE_NS } else { ENTER_NS };
    is_faster(total_ns, longest_ns, rayon::current_num_threads(), wake_ns)
}

/// Returns the number of rows of a task of a loop over rows. `row_ns` is the estimated time of a row.
pub(super) fn task_rows(row_ns: f64) -> usize {
    ((TASK_NS / row_ns) as usize).max(1)
}

/// Returns true if a loop saves enough time on this many threads, of which the others are woken in `wake_ns`.
fn is_faster(total_ns: f64, longest_ns: f64, n_threads: usize, wake_ns: f64) -> bool {
    let parallel_ns = (total_ns / n_threads as f64).max(longest_ns.min(total_ns));
    MARGIN * wake_ns < total_ns - parallel_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::ThreadPoolBuilder;

    #[test]
    fn small_loops_run_alone_and_large_ones_in_parallel() {
        for n_threads in [2, 4, 64] {
            for wake_ns in [WAKE_NS, ENTER_NS] {
                for small_ns in [0.0, 5_000.0, 30_000.0] {
                    assert!(
                        !is_faster(small_ns, 0.0, n_threads, wake_ns),
                        "{small_ns} ns, {n_threads} threads"
                    );
                }
                assert!(is_faster(500_000.0, TASK_NS, n_threads, wake_ns), "{n_threads} threads");
            }
        }
    }

    #[test]
    fn a_loop_on_one_thread_or_in_one_task_runs_alone() {
        let pool = |n| ThreadPoolBuilder::new().num_threads(n).build().expect("the pool should start");
        assert!(!pool(1).install(|| is_parallel(1e12, 1.0)));
        pool(4).install(|| {
            assert!(!is_parallel(1e12, 1e12));
            assert!(is_parallel(1e12, 1.0));
        });
    }

    #[test]
    fn the_decision_is_monotone() {
        let times = (0..60).map(|step| 1000.0 * 1.2_f64.powi(step));
        for n_threads in [2, 3, 16] {
            let decided = |wake_ns| times.clone().map(move |ns| is_faster(ns, ns / 64.0, n_threads, wake_ns));
            let of = |decided: Vec<bool>| {
                assert!(decided.is_sorted(), "a longer loop runs alone on {n_threads} threads");
                decided.iter().filter(|is_parallel| **is_parallel).count()
            };
            let inside = of(decided(WAKE_NS).collect());
            let outside = of(decided(ENTER_NS).collect());
            assert!(outside < inside, "{outside} and {inside} of 60 sizes in parallel");
        }
        let of_threads = [1, 2, 3, 16].map(|n_threads| is_faster(100_000.0, 1.0, n_threads, ENTER_NS));
        assert!(of_threads.is_sorted());
        let of_tasks = [1e6, 8e5, 5e5, 1.0].map(|longest_ns| is_faster(1e6, longest_ns, 2, ENTER_NS));
        assert_eq!(of_tasks, [false, true, true, true]);
    }

    #[test]
    fn narrow_products_cost_as_much_as_a_vector_of_columns() {
        assert_eq!(product_row_ns(64, 2), product_row_ns(64, LANES));
        assert!(product_row_ns(64, LANES) < product_row_ns(64, LANES + 1));
    }

    #[test]
    fn tasks_have_at_least_one_row() {
        assert_eq!(task_rows(1e9), 1);
        assert_eq!(task_rows(TASK_NS / 4.0), 4);
    }
}
