//! Running sums equal those of the host.

use kiln_kernels::testing::{device, running_sums};

/// The sizes are those around the tiles of one plane, one cube and several cubes.
#[test]
fn running_sums_are_those_of_the_host() {
    let sizes = [0, 1, 31, 32, 33, 255, 256, 257, 2047, 2048, 2049, 16_383, 16_384, 16_385, 70_000, 600_000];
    for n in sizes {
        for (name, value) in [("small", 7), ("saturating", u32::MAX / 1000)] {
            let values: Vec<u32> = (0..n).map(|position| position % value).collect();
            let sums = values.iter().scan(0_u32, |sum, value| {
                *sum = sum.saturating_add(*value);
                Some(*sum)
            });
            let expected: Vec<u32> = std::iter::once(0).chain(sums).collect();
            if let Some(got) = running_sums(&values, &device()) {
                assert!(got == expected, "{n} values, {name}: the sums differ");
            }
        }
    }
}
