//! The kernels that kiln defines, as the sources list them.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;

use crate::workspace::{self, SourceFile};

/// A kernel that kiln defines. Its name in a trace starts with `name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) name: String,
    /// The element type; `None` for kernels that are not generic in it.
    pub(super) dtype: Option<&'static str>,
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            Some(dtype) => write!(f, "{} of {dtype}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Kernel {
    /// Returns true if `traced` is a name of this kernel in a trace, without its hash. The vector width and other
    /// parameters may follow the name.
    pub(super) fn is(&self, traced: &str) -> bool {
        let (start, next) = match self.dtype {
            Some(dtype) => (format!("{}_f_{dtype}", self.name), "_"),
            None => (self.name.clone(), "_n_"),
        };
        traced.strip_prefix(&start).is_some_and(|rest| rest.is_empty() || rest.starts_with(next))
    }

    /// Returns true if the elements are of f16 or bf16. Only these kernels have other code for other kinds of GPU, because
    /// not all kinds have the same instructions for such values.
    pub(super) fn is_of_half_precision(&self) -> bool {
        matches!(self.dtype, Some("f16" | "bf16"))
    }
}

/// Returns the kernel that has this name in a trace, without its hash.
pub(super) fn find<'a>(kernels: &'a [Kernel], traced: &str) -> Option<&'a Kernel> {
    kernels.iter().find(|kernel| kernel.is(traced))
}

/// The kernels that run only on devices without planes, which CUDA devices have.
const WITHOUT_PLANES: [&str; 3] = ["chunk_sums", "sums_in_chunks", "store_values"];

/// Returns the kernels that the sources define for CUDA devices. A kernel that is generic in its element type counts
/// once per type.
pub(super) fn own() -> Result<Vec<Kernel>> {
    Ok(defined_in(&workspace::text_files(&workspace::paths()?)?))
}

/// Returns the names of all kernels that the sources define, for devices of all kinds.
pub(crate) fn names() -> Result<BTreeSet<String>> {
    let files = workspace::text_files(&workspace::paths()?)?;
    Ok(heads_in(&files).map(|(name, _)| name.to_owned()).collect())
}

/// Returns a message for each kernel whose positions always have 32 bits. A launch derives the width from the lengths of the
/// arguments, for kernels with addresses of any width.
pub(crate) fn narrow_kernels(files: &[SourceFile]) -> Vec<String> {
    let of_kernels = files.iter().filter(|file| file.path.starts_with("crates/kernels/src/cube/"));
    let narrow = of_kernels.flat_map(|file| {
        let heads =
            file.text.split("#[cube(launch").skip(1).map(|text| text.split(']').next().unwrap_or(text));
        let n_narrow = heads.filter(|head| !head.contains("address_type = \"dynamic\"")).count();
        std::iter::repeat_n(&file.path, n_narrow)
    });
    narrow.map(|path| format!("{path} has a kernel without `address_type = \"dynamic\"`")).collect()
}

fn defined_in(files: &[SourceFile]) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for (name, generics) in heads_in(files) {
        // Segment sums have a kernel of the same name, which is generic.
        if WITHOUT_PLANES.contains(&name) && !generics.contains("F: Float") {
            continue;
        }
        let dtypes: &[_] =
            if generics.contains("F: Float") { &[Some("f32"), Some("f16"), Some("bf16")] } else { &[None] };
        kernels.extend(dtypes.iter().map(|dtype| Kernel { name: name.to_owned(), dtype: *dtype }));
    }
    kernels
}

/// Returns the name and the generic parameters of each kernel.
fn heads_in(files: &[SourceFile]) -> impl Iterator<Item = (&str, &str)> {
    let of_kernels = files.iter().filter(|file| file.path.starts_with("crates/kernels/src/cube/"));
    of_kernels.flat_map(|file| file.text.split("#[cube(launch").skip(1)).filter_map(|text| {
        let (_, rest) = text.split_once("\nfn ")?;
        let (head, _) = rest.split_once('(')?;
        Some(head.split_once('<').unwrap_or((head, "")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, dtype: Option<&'static str>) -> Kernel {
        Kernel { name: name.to_owned(), dtype }
    }

    #[test]
    fn finds_the_kernels_of_the_sources() {
        let text = "#[cube(launch)]\nfn empty(table: &mut [u32]) {\n}\n\
            #[cube(launch)]\nfn chunk_sums(values: &[u32]) {}\n\
            #[cube(launch, address_type = \"dynamic\")]\nfn gather<F: Float, N: Size>(\n) {}\n#[cube]\nfn helper() {}\n";
        let file = SourceFile { path: "crates/kernels/src/cube/a.rs".to_owned(), text: text.to_owned() };
        let expected = [kernel("empty", None)]
            .into_iter()
            .chain(["f32", "f16", "bf16"].map(|dtype| kernel("gather", Some(dtype))));
        assert_eq!(defined_in(&[file]), expected.collect::<Vec<_>>());
    }

    #[test]
    fn kernels_with_addresses_of_32_bits_are_found() {
        let text =
            "#[cube(launch)]\nfn empty() {}\n#[cube(launch, address_type = \"dynamic\")]\nfn gather() {}\n";
        let file = SourceFile { path: "crates/kernels/src/cube/a.rs".to_owned(), text: text.to_owned() };
        let expected = "crates/kernels/src/cube/a.rs has a kernel without `address_type = \"dynamic\"`";
        assert_eq!(narrow_kernels(&[file]), [expected]);
    }

    #[test]
    fn kernels_are_recognized_by_their_names_in_traces() {
        assert!(kernel("segment_sum", Some("f32")).is("segment_sum_f_f32_n_4"));
        assert!(!kernel("segment_sum", Some("f16")).is("segment_sum_f_f32_n_4"));
        assert!(kernel("segment_sum", Some("bf16")).is_of_half_precision());
        assert!(!kernel("segment_sum", Some("f32")).is_of_half_precision());
        assert!(kernel("pick", None).is("pick") && kernel("pick", None).is("pick_n_4"));
        assert!(!kernel("pick", None).is("pick_counts"));
        // The kernel of the same name with an element type is another one.
        assert!(!kernel("chunk_sums", Some("f32")).is("chunk_sums"));
    }
}
