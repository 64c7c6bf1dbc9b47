//! Stanzas of Debian control data (Debian Policy 4.7, section 5.1) and relation fields (section 7.1).

use anyhow::{Result, bail};

/// One stanza: its fields in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Stanza {
    /// Line of the file that the stanza starts on, from 1.
    pub(crate) line: usize,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    /// The value with its continuation lines, each after a `\n`; outer blanks removed.
    value: String,
}

impl Stanza {
    /// The value of a field; names match whatever their case. `None` for a field that is absent or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(field.value.as_str()).filter(|value| !value.is_empty())
    }

    /// The value of a field that must be there.
    pub(crate) fn require(&self, name: &str) -> Result<&str> {
        match self.get(name) {
            Some(value) => Ok(value),
            None => bail!("the stanza at line {} has no field {name}", self.line),
        }
    }
}

/// Splits control data into stanzas. Lines may end with `\n` or `\r\n`; blank lines separate stanzas; a
/// line that starts with a blank continues the field above it.
///
/// # Errors
/// For a line that is neither a field nor a continuation, and for a field that stands twice in a stanza.
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
                bail!("line {line_number} continues a field, but no field stands above it");
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
                bail!("line {line_number} has the field {name} a second time in its stanza");
            }
            stanza.fields.push(Field { name: name.to_owned(), value: value.trim().to_owned() });
        }
    }
    if !stanza.fields.is_empty() {
        stanzas.push(stanza);
    }
    Ok(stanzas)
}

/// The package names of a relation field, alternatives one by one: `a (>= 1) | b:any, c [amd64]` is
/// `a`, `b`, `c`. Versions, architecture qualifiers and restrictions are dropped.
pub(crate) fn relation_names(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', '|']).filter_map(|relation| {
        let end = |c: char| c.is_whitespace() || matches!(c, '(' | ':' | '[' | '<');
        relation.trim().split(end).next().filter(|name| !name.is_empty())
    })
}
