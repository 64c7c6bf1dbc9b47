//! The separator of a CSV file, from its first line.

use std::io::{self, Read};
use std::path::Path;

use csv::ByteRecord;

use crate::spec::CsvSpec;
use crate::{Error, Result, TableFileError};

/// The separators that are detected.
pub(super) const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// The number of bytes that are read at a time.
const PART_BYTES: u64 = 1 << 12;

/// The first line of a file, by which its separator is detected.
#[derive(Debug, Default)]
pub(super) struct FirstLine {
    /// The bytes of the file up to the end of the line, and some more.
    pub(super) bytes: Vec<u8>,
    /// The separator that a line `sep=;` of Excel names, and the length of that line.
    stated: Option<(u8, usize)>,
}

/// The columns of the import.
#[derive(Debug, Default)]
pub(super) struct WantedColumns<'a> {
    /// Those that the file must have.
    pub(super) required: Vec<&'a str>,
    /// Those that the file need not have, because its path or another file has them.
    pub(super) optional: Vec<&'a str>,
}

impl FirstLine {
    /// Reads the first line, which may have ends of lines within quotes, after a line `sep=;`.
    pub(super) fn read(reader: &mut impl Read, form: &CsvSpec) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let mut n_scanned = 0;
        let mut scan = LineScan::new(form);
        loop {
            let n_bytes = bytes.len();
            // A reader of records fails if a line is too long.
            reader.by_ref().take(PART_BYTES).read_to_end(&mut bytes)?;
            let stated = stated_separator(&bytes);
            n_scanned = n_scanned.max(stated.map_or(0, |(_, n_bytes)| n_bytes));
            let has_end = bytes[n_scanned..].iter().any(|byte| scan.ends_at(*byte));
            if has_end || bytes.len() == n_bytes {
                return Ok(Self { bytes, stated });
            }
            n_scanned = bytes.len();
        }
    }

    /// Returns the length of the line `sep=;`.
    pub(super) fn n_stated(&self) -> usize {
        self.stated.map_or(0, |(_, n_bytes)| n_bytes)
    }

    /// Returns the separator: that of the spec, that of a line `sep=;`, the tab of a file named `.tsv`, or the only one that the line
    /// has outside of quotes. A line that has several is split by the one that gives the columns of the import: all of `required` and
    /// the most of `optional`, or as many fields as the spec has names.
    ///
    /// # Errors
    /// Returns [`TableFileError::Separator`] if several separators occur and none, or more than one, gives the columns.
    pub(super) fn separator(&self, path: &Path, form: &CsvSpec, columns: &WantedColumns<'_>) -> Result<u8> {
        if let Some(separator) = form.separator {
            return Ok(separator as u8);
        }
        if let Some((separator, _)) = self.stated {
            return Ok(separator);
        }
        let found: Vec<u8> =
            SEPARATORS.into_iter().filter(|separator| self.n_fields(*separator, form) > 1).collect();
        if is_tsv(path) && (found.contains(&b'\t') || self.n_found(b'\t', form, columns).is_some()) {
            return Ok(b'\t');
        }
        if let [] | [_] = found[..] {
            return Ok(found.first().copied().unwrap_or(b','));
        }
        let n_found = |separator: &u8| self.n_found(*separator, form, columns);
        let most = found.iter().filter_map(n_found).max();
        let fitting = found.iter().copied().filter(|separator| most.is_some() && n_found(separator) == most);
        let fitting: Vec<u8> = fitting.collect();
        match fitting[..] {
            [separator] => Ok(separator),
            // A header that has the columns between commas was read so before other separators were detected.
            [b',', ..] if form.names.is_empty() => Ok(b','),
            _ => Err(Error::TableFile(TableFileError::Separator {
                path: path.to_owned(),
                line: if form.names.is_empty() { "the header" } else { "the first row" },
                found: found.iter().map(|separator| shown(*separator)).collect::<Vec<_>>().join(" and "),
            })),
        }
    }

    /// Returns how many of the optional columns the line has if it is split so; `None` if a required one is missing.
    fn n_found(&self, separator: u8, form: &CsvSpec, columns: &WantedColumns<'_>) -> Option<usize> {
        let record = self.record(separator, form);
        if !form.names.is_empty() {
            return (record.len() == form.names.len()).then_some(0);
        }
        let has = |column: &&&str| record.iter().any(|field| field == column.as_bytes());
        let has_required = columns.required.iter().all(|column| has(&column));
        has_required.then(|| columns.optional.iter().filter(has).count())
    }

    fn n_fields(&self, separator: u8, form: &CsvSpec) -> usize {
        self.record(separator, form).len()
    }

    /// Returns the fields of the line.
    fn record(&self, separator: u8, form: &CsvSpec) -> ByteRecord {
        let mut record = ByteRecord::new();
        // A record that cannot be read has no fields.
        let _ = builder(form, separator)
            .has_headers(false)
            .from_reader(&self.bytes[self.n_stated()..])
            .read_byte_record(&mut record);
        record
    }
}

/// Returns true for a file named `.tsv`, also if it is compressed.
fn is_tsv(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
    name.ends_with(".tsv")
}

/// Returns the builder of a parser.
pub(crate) fn builder(form: &CsvSpec, separator: u8) -> csv::ReaderBuilder {
    let mut builder = csv::ReaderBuilder::new();
    builder.flexible(true).delimiter(separator).escape(form.escape.map(|escape| escape as u8));
    builder
}

/// Returns a separator for a message.
fn shown(separator: u8) -> &'static str {
    match separator {
        b',' => "','",
        b';' => "';'",
        _ => "tab",
    }
}

/// Finds the end of a line outside of quotes, after a line with any text.
struct LineScan<'a> {
    form: &'a CsvSpec,
    is_quoted: bool,
    has_text: bool,
    /// True if a quote begins a quoted field, or is the second of two within one.
    may_open: bool,
    is_escaped: bool,
}

impl<'a> LineScan<'a> {
    fn new(form: &'a CsvSpec) -> Self {
        Self { form, is_quoted: false, has_text: false, may_open: true, is_escaped: false }
    }

    /// Returns true if the line ends at the next byte.
    fn ends_at(&mut self, byte: u8) -> bool {
        let is_end = matches!(byte, b'\r' | b'\n');
        if self.is_escaped {
            self.is_escaped = false;
        } else if self.is_quoted {
            self.is_escaped = self.form.escape == Some(char::from(byte));
            self.is_quoted = byte != b'"';
            self.may_open = !self.is_quoted;
        } else if is_end && self.has_text {
            return true;
        } else {
            self.has_text |= !is_end;
            self.is_quoted = byte == b'"' && self.may_open;
            let is_separator = SEPARATORS.contains(&byte) || self.form.separator == Some(char::from(byte));
            self.may_open = is_separator || is_end;
        }
        false
    }
}

/// Returns the separator of a line `sep=;` at the start, and the length of the line.
fn stated_separator(bytes: &[u8]) -> Option<(u8, usize)> {
    let rest = bytes.strip_prefix(b"sep=")?;
    let (separator, rest) = rest.split_first()?;
    let n_end = [&b"\r\n"[..], b"\n", b"\r"].iter().find(|end| rest.starts_with(end))?.len();
    SEPARATORS.contains(separator).then_some((*separator, b"sep=;".len() + n_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separator_of(text: &str, form: &CsvSpec, columns: &[&str]) -> Result<u8, String> {
        separator_in("a.csv", text, form, columns, &[])
    }

    fn separator_in(
        path: &str,
        text: &str,
        form: &CsvSpec,
        required: &[&str],
        optional: &[&str],
    ) -> Result<u8, String> {
        let columns = WantedColumns { required: required.to_vec(), optional: optional.to_vec() };
        let line = FirstLine::read(&mut text.as_bytes(), form).expect("bytes in memory can be read");
        line.separator(Path::new(path), form, &columns).map_err(|error| error.to_string())
    }

    #[test]
    fn the_separator_is_that_of_the_first_line() {
        let header = CsvSpec::default();
        for (text, columns, expected) in [
            ("id,x\n1;2,3\n", &["id"][..], b','),
            ("id;x\n1,5;2\n", &["id"], b';'),
            ("id\tx\n", &["id"], b'\t'),
            ("id\n1;2\n", &["id"], b','),
            ("\"a,b\";id\r\n", &["id"], b';'),
            ("\"a\n,b\";id\n", &["id"], b';'),
            ("\n\nid;x\n1,2\n", &["id"], b';'),
            ("5\" disk;id\n1,2\n", &["id"], b';'),
            ("\"a \"\"b\n\"\",c\";id\n1,2\n", &["id"], b';'),
            // Several separators: the one with the columns.
            ("id;price, net;x\n", &["id", "x"], b';'),
            ("id,price; gross,x\n", &["id", "x"], b','),
            ("id;x,y\ta\n", &["id", "x,y\ta"], b';'),
            ("sep=;\r\nid,x;y\r\n", &["nothing"], b';'),
            ("sep=\t\nid,x\n", &["id"], b'\t'),
            ("", &[], b','),
        ] {
            assert_eq!(separator_of(text, &header, columns), Ok(expected), "{text:?}");
        }
        let names = CsvSpec { names: vec!["id".into(), "x".into()], ..CsvSpec::default() };
        assert_eq!(separator_of("1;2,5\n", &names, &[]).map_err(drop), Err(()));
        assert_eq!(separator_of("1;2,5,7\n", &names, &[]), Ok(b';'));
        let stated = CsvSpec { separator: Some('|'), ..names };
        assert_eq!(separator_of("1;2,5\n", &stated, &[]), Ok(b'|'));
    }

    #[test]
    fn columns_that_a_file_need_not_have_are_no_condition() {
        let header = CsvSpec::default();
        for (path, text, optional, expected) in [
            ("a.csv", "id;price, net\n", &["year"][..], Ok(b';')),
            // The separator with the most columns.
            ("a.csv", "id;x,id\n", &["x"], Ok(b',')),
            ("a.csv", "id;x;a,id\n", &["x"], Ok(b';')),
            ("a.tsv", "id\tx;y;z\n", &[], Ok(b'\t')),
            ("a.tsv.gz", "id\tid,x;y\n", &["x;y"], Ok(b'\t')),
            ("a.tsv", "id,x\n", &[], Ok(b',')),
            ("a.csv", "a;b,c\n", &[], Err(())),
        ] {
            let found = separator_in(path, text, &header, &["id"], optional);
            assert_eq!(found.map_err(drop), expected, "{path}: {text:?}");
        }
    }

    #[test]
    fn an_ambiguous_header_names_the_key_to_set() {
        assert_eq!(
            separator_of("id;price,net\n", &CsvSpec::default(), &["id", "net"]),
            Err("a.csv: the header has ',' and ';', and is no list of the import's columns with one of them: \
                 set the separator in the spec, such as `csv: {separator: ';'}`"
                .to_owned())
        );
    }
}
