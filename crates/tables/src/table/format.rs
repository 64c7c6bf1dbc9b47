use std::path::Path;

/// The formats of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFormat {
    Parquet,
    Arrow,
    Csv,
    JsonLines,
}

impl TableFormat {
    pub(crate) const EXPECTED: &str = "a name that ends in .parquet, .arrow, .feather, .csv, .tsv or .jsonl, the last three also with .gz or .zst";

    /// The ends of the names of each format.
    const ENDS: [(&str, Self); 6] = [
        (".parquet", Self::Parquet),
        (".arrow", Self::Arrow),
        (".feather", Self::Arrow),
        (".csv", Self::Csv),
        (".tsv", Self::Csv),
        (".jsonl", Self::JsonLines),
    ];

    /// Returns the format of a file by its name.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        // A name that is not UTF-8 has a readable end.
        let name = path.file_name()?.to_string_lossy();
        let name: &str = &name;
        let compressed = [".gz", ".zst"].into_iter().find_map(|end| name.strip_suffix(end));
        let name = compressed.unwrap_or(name);
        let (_, format) = Self::ENDS.into_iter().find(|(end, _)| name.ends_with(end))?;
        let is_text = matches!(format, Self::Csv | Self::JsonLines);
        (is_text || compressed.is_none()).then_some(format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_from_the_file_name() {
        use TableFormat::{Arrow, Csv, JsonLines, Parquet};
        for (name, format) in [
            ("a.parquet", Some(Parquet)),
            ("a.csv", Some(Csv)),
            ("b/a.b.csv.gz", Some(Csv)),
            ("a.jsonl", Some(JsonLines)),
            ("a.jsonl.gz", Some(JsonLines)),
            ("a.arrow", Some(Arrow)),
            ("a.feather", Some(Arrow)),
            ("a.feather.gz", None),
            ("a.tsv", Some(Csv)),
            ("a.csv.zst", Some(Csv)),
            ("a.jsonl.zst", Some(JsonLines)),
            ("a.parquet.zst", None),
            ("a.csv.xz", None),
            ("a.parquet.gz", None),
            ("a.json", None),
            ("csv", None),
            ("", None),
        ] {
            assert_eq!(TableFormat::of(Path::new(name)), format, "{name}");
        }
    }
}
