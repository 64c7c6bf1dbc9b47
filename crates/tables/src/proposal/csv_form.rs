//! The form of a CSV file, from its first bytes.

use csv::ByteRecord;

use crate::spec::CsvSpec;
use crate::table::{Cell, csv_builder, text_cell};

/// The separators that are tried.
const SEPARATORS: [char; 4] = [',', ';', '\t', '|'];

/// The share of the records with as many fields as the first one that makes a separator certain.
const CERTAIN: f64 = 0.98;

/// The first records of a file.
struct FirstRecords {
    records: Vec<ByteRecord>,
    /// The share of the records with as many fields as the first one, or one more, as R writes row names.
    equal_share: f64,
    /// The share of those with as many fields as the first one.
    exact_share: f64,
}

impl FirstRecords {
    fn read(bytes: &[u8], is_whole: bool, form: &CsvSpec) -> Self {
        let separator = form.separator.unwrap_or(',');
        let mut reader = csv_builder(form, separator as u8).has_headers(false).from_reader(bytes);
        let mut records: Vec<ByteRecord> = reader.byte_records().map_while(Result::ok).collect();
        if !is_whole && records.len() > 1 {
            // The last record may be a part of one.
            records.pop();
        }
        let n_fields = records.first().map_or(0, ByteRecord::len);
        let n_rows = records.len().saturating_sub(1);
        let n_equal = |n: usize| records.iter().skip(1).filter(|record| record.len() == n).count();
        let n_exact = n_equal(n_fields);
        let n_equal = n_exact.max(n_equal(n_fields + 1));
        let [equal_share, exact_share] =
            [n_equal, n_exact].map(|n| if n_rows == 0 { 1.0 } else { n as f64 / n_rows as f64 });
        Self { records, equal_share, exact_share }
    }

    fn n_fields(&self) -> usize {
        self.records.first().map_or(0, ByteRecord::len)
    }
}

/// Returns the form of a file as far as an import would not find it, and what it is for a comment. `is_tsv` is true for a name whose
/// separator is a tab.
pub(super) fn detect(bytes: &[u8], is_whole: bool, is_tsv: bool) -> (CsvSpec, Vec<String>) {
    let mut notes = Vec::new();
    let mut form = CsvSpec::default();
    // A file of Excel names its separator.
    if bytes.starts_with(b"sep=") {
        return (form, notes);
    }
    let split = |separator: char, escape: Option<char>| {
        let form = CsvSpec { separator: Some(separator), escape, ..CsvSpec::default() };
        FirstRecords::read(bytes, is_whole, &form)
    };
    let tried = SEPARATORS.map(|separator| (separator, split(separator, None)));
    let several = tried.iter().filter(|(_, first)| first.n_fields() > 1);
    let rank = |first: &FirstRecords| (first.equal_share >= CERTAIN, first.n_fields());
    let mut separator = if is_tsv { '\t' } else { ',' };
    let mut most = None;
    for (candidate, first) in several.clone() {
        if most.is_none_or(|most| most < rank(first)) {
            most = Some(rank(first));
            separator = *candidate;
        }
    }
    let is_default = separator == ',' || (is_tsv && separator == '\t');
    if !is_default || (several.count() > 1 && !is_tsv) {
        form.separator = Some(separator);
    }
    let plain = split(separator, None);
    let escaped = bytes.windows(2).any(|pair| pair == b"\\\"").then(|| split(separator, Some('\\')));
    let first = match escaped {
        Some(escaped)
            if plain.equal_share < escaped.equal_share || plain.exact_share < escaped.exact_share =>
        {
            form.escape = Some('\\');
            escaped
        }
        _ => plain,
    };
    if let Some(why) = why_no_header(&first.records) {
        form.names = (1..=first.n_fields()).map(|number| format!("column{number}")).collect();
        notes.push(format!("no header, because {why}: correct the names if it has one"));
    }
    (form, notes)
}

/// Returns the reason why the first record is a row: all of its fields are values, or one is a value of its column.
fn why_no_header(records: &[ByteRecord]) -> Option<String> {
    let (first, rows) = records.split_first()?;
    if rows.is_empty() || first.is_empty() {
        return None;
    }
    let fields: Vec<&str> =
        first.iter().map(|field| std::str::from_utf8(field).unwrap_or_default()).collect();
    if fields.iter().all(|field| !matches!(text_cell(field).value(), Cell::Text(_) | Cell::Missing)) {
        return Some("the first line has values only".to_owned());
    }
    // Files that were appended to each other have the header several times.
    if rows.iter().any(|row| row == first) {
        return None;
    }
    let (_, field) = fields.iter().enumerate().find(|(position, field)| {
        !field.is_empty() && rows.iter().any(|row| row.get(*position) == Some(field.as_bytes()))
    })?;
    Some(format!("{} of the first line is a value of its column, too", crate::bad_rows::shortened(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_file_follows_from_its_first_records() {
        let separated = |separator| CsvSpec { separator: Some(separator), ..CsvSpec::default() };
        let named = |n: usize| (1..=n).map(|n| format!("column{n}")).collect();
        for (text, expected) in [
            ("a,b\n1,2\n", CsvSpec::default()),
            ("a;b\n1;2\n", separated(';')),
            ("a|b\nx|2\n", separated('|')),
            ("a, or c;b\n1;2\n", separated(';')),
            ("name,\"a;b\"\nx,2\ny,\"3;4\"\n", separated(',')),
            ("sep=;\na;b\n1;2\n", CsvSpec::default()),
            ("1,2\n3,4\n", CsvSpec { names: named(2), ..CsvSpec::default() }),
            ("u0,31\nu1,22\nu0,22\n", CsvSpec { names: named(2), ..CsvSpec::default() }),
            ("u,v\nu0,31\nu,v\n", CsvSpec::default()),
            ("a\nx\n", CsvSpec::default()),
            ("a,b\n\"x \\\" y, z\",1\n", CsvSpec { escape: Some('\\'), ..CsvSpec::default() }),
            ("", CsvSpec::default()),
        ] {
            assert_eq!(detect(text.as_bytes(), true, false).0, expected, "{text:?}");
        }
        assert_eq!(detect(b"a\tb,c\n1\t2\n", true, true).0, CsvSpec::default());
    }
}
