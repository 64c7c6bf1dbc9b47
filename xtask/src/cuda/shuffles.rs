//! Shuffles in the PTX of kernels whose lanes take different branches.
//!
//! After such a branch, the lanes of a warp may stay apart. A shuffle that only some of them execute reads undefined values
//! from the others, so all lanes must be synchronized before it.

/// The kernels with shuffles after branches: the running sums.
pub(super) const KERNELS: [&str; 2] = ["sums_in_tiles", "tile_sums"];

/// Returns the numbers of the lines with a shuffle that does not follow a synchronization of all lanes, or another shuffle,
/// without a label or a branch in between. The first line has the number 1.
///
/// # Errors
/// Returns an error if the text has no shuffle.
pub(super) fn unsynchronized(ptx: &str) -> Result<Vec<usize>, &'static str> {
    let mut lines = Vec::new();
    let mut n_shuffles = 0;
    let mut are_together = false;
    for (index, line) in ptx.lines().enumerate() {
        match kind(line) {
            Kind::Synchronization => are_together = true,
            Kind::Branch => are_together = false,
            Kind::Shuffle => {
                n_shuffles += 1;
                if !are_together {
                    lines.push(index + 1);
                }
                are_together = true;
            }
            Kind::Other => {}
        }
    }
    if n_shuffles == 0 { Err("the kernel has no shuffle") } else { Ok(lines) }
}

/// What a line of PTX means for the lanes of a warp.
enum Kind {
    /// A barrier of all lanes of a warp or of all threads of a block.
    Synchronization,
    /// A label, a branch or the end of a thread.
    Branch,
    Shuffle,
    Other,
}

fn kind(line: &str) -> Kind {
    let code = line.split("//").next().unwrap_or_default().trim();
    if code.ends_with(':') {
        return Kind::Branch;
    }
    let is_guarded = code.starts_with('@');
    let mut words = code.split_whitespace().skip(usize::from(is_guarded));
    let instruction = words.next().unwrap_or_default().trim_end_matches(';');
    let operand = words.next().unwrap_or_default().trim_end_matches(';');
    match instruction.split('.').next().unwrap_or_default() {
        "shfl" => Kind::Shuffle,
        "bra" | "brx" | "ret" | "exit" => Kind::Branch,
        // Lanes whose guard is false do not take part.
        "bar" | "barrier" if is_guarded => Kind::Other,
        "bar" if instruction.starts_with("bar.warp") => {
            let is_full = ["-1", "0xffffffff", "0xFFFFFFFF", "4294967295"].contains(&operand);
            if is_full { Kind::Synchronization } else { Kind::Other }
        }
        "bar" | "barrier" => Kind::Synchronization,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHUFFLE: &str = "\tactivemask.b32 \t%r4;\n\tshfl.sync.up.b32 \t%r5, %r3, 1, 0, %r4;\n";
    const SYNC: &str = "\tbar.warp.sync \t-1;\n";

    #[test]
    fn shuffles_after_a_synchronization_of_all_lanes_pass() {
        let branch = "\t@%p1 bra \t$L__BB0_2;\n\tld.global.b32 \t%r3, [%rd3];\n$L__BB0_2:\n";
        let selection = "\tadd.s32 \t%r6, %r5, %r3;\n\tselp.b32 \t%r3, %r6, %r3, %p2;\n";
        for synchronization in [
            SYNC,
            "\tbar.warp.sync \t0xffffffff;\n",
            "\tbar.sync \t0;\n",
            "\tbarrier.cta.sync.aligned.all \t0;\n",
        ] {
            let text = [branch, synchronization, SHUFFLE, selection, SHUFFLE].concat();
            assert_eq!(unsynchronized(&text), Ok(Vec::new()), "{synchronization}");
        }
    }

    #[test]
    fn shuffles_after_a_branch_are_reported_with_their_line() {
        let branch = "\t@%p1 bra \t$L__BB0_2;\n";
        let label = "$L__BB0_2: // %if.end\n";
        assert_eq!(unsynchronized(&[branch, SHUFFLE].concat()), Ok(vec![3]));
        assert_eq!(unsynchronized(&[SYNC, branch, SHUFFLE, SHUFFLE].concat()), Ok(vec![4]));
        assert_eq!(unsynchronized(&[SYNC, SHUFFLE, label, SHUFFLE].concat()), Ok(vec![6]));
        assert_eq!(unsynchronized(SHUFFLE), Ok(vec![2]));
        for other in [
            "\tbar.warp.sync \t%r1;\n",
            "\tbar.warp.sync \t65535;\n",
            "\t@%p1 bar.warp.sync \t-1;\n",
            "\t// bar.warp.sync -1;\n",
        ] {
            assert_eq!(unsynchronized(&[branch, other, SHUFFLE].concat()), Ok(vec![4]), "{other}");
        }
    }

    #[test]
    fn a_text_without_shuffles_is_an_error() {
        assert_eq!(unsynchronized(SYNC), Err("the kernel has no shuffle"));
    }
}
