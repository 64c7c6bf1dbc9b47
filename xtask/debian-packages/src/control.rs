//! Parsers of stanzas of Debian control data (Debian Policy 4.7, section 5.1), of relation fields (section 7.1), of
//! maintainers and of Debtags.

use anyhow::{Result, bail};

/// A stanza, with its fields in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Stanza {
    /// The line number of the stanza's first line in the file, from 1.
    pub(crate) line: usize,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    /// The trimmed value with its continuation lines, each after a `\n`.
    value: String,
}

impl Stanza {
    /// Returns the value of a field, or `None` if it is absent or empty. Names are case-insensitive.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(field.value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns the value of a required field, or an error if the field is absent or empty.
    pub(crate) fn require(&self, name: &str) -> Result<&str> {
        match self.get(name) {
            Some(value) => Ok(value),
            None => bail!("the stanza at line {} has no field {name}", self.line),
        }
    }
}

/// Splits control data into stanzas. Lines may end with `\n` or `\r\n`; blank lines separate stanzas; a line that
/// starts with a space or a tab continues the field above it.
///
/// # Errors
/// Returns an error if a line is neither a field nor a continuation, or if a stanza has a duplicate field.
pub(crate) fn parse(text: &str) -> Result<Vec<Stanza>> {
    let mut stanzas = Vec::new();
    let mut stanza = Stanza::default();
    for (line_idx, line) in text.lines().enumerate() {
        let line_number = line_idx + 1;
        if line.trim().is_empty() {
            if !stanza.fields.is_empty() {
                stanzas.push(std::mem::take(&mut stanza));
            }
        } else if line.starts_with([' ', '\t']) {
            let Some(field) = stanza.fields.last_mut() else {
                bail!("line {line_number} continues a field, but there is no field above it");
            };
            field.value.push('\n');
            field.value.push_str(line.trim());
        } else {
            let Some((name, value)) = line.split_once(':') else {
                bail!("line {line_number} has no colon: {line:?}");
            };
            if stanza.fields.is_empty() {
                stanza.line = line_number;
            }
            if stanza.fields.iter().any(|field| field.name.eq_ignore_ascii_case(name)) {
                bail!("line {line_number}: duplicate field {name} in its stanza");
            }
            stanza.fields.push(Field { name: name.to_owned(), value: value.trim().to_owned() });
        }
    }
    if !stanza.fields.is_empty() {
        stanzas.push(stanza);
    }
    Ok(stanzas)
}

/// Returns the tags in a field `Tag`: `role::program, use::editing` gives `role::program` and `use::editing`.
pub(crate) fn tags(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|tag| !tag.is_empty())
}

/// Returns the address of a maintainer, in lower case: `Some Name <some@Address>` gives `some@address`. A value without
/// an address in angle brackets is returned whole.
pub(crate) fn address(value: &str) -> String {
    let address =
        value.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(address, _)| address);
    address.unwrap_or(value).trim().to_lowercase()
}

/// Returns the package names in a relation field, including alternatives: `a (>= 1) | b:any, c [amd64]` gives `a`, `b`
/// and `c`. Versions, architecture qualifiers and restrictions are dropped.
pub(crate) fn relation_names(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', '|']).filter_map(|relation| {
        let end = |c: char| c.is_whitespace() || matches!(c, '(' | ':' | '[' | '<');
        relation.trim().split(end).next().filter(|name| !name.is_empty())
    })
}
