use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::Input;
use super::rust_source::{RustSource, attribute_at};

/// The name of the line of a type that accepts keys besides its fields, and ignores them.
const OTHER_KEYS: &str = "other keys";

/// Adds the fields of all types of a file that are deserialised: the keys of a file in JSON or YAML. The section is the crate and
/// the name of the type. A field of a variant is named `variant.field`.
pub(super) fn add(source: &RustSource, inputs: &mut BTreeSet<Input>) {
    add_items(&source.tokens, &source.crate_name(), inputs);
}

fn add_items(tokens: &[TokenTree], crate_name: &str, inputs: &mut BTreeSet<Input>) {
    let mut attributes = Vec::new();
    let mut position = 0;
    while position < tokens.len() {
        if let Some((attribute, n_tokens)) = attribute_at(tokens, position) {
            attributes.push(attribute.stream());
            position += n_tokens;
            continue;
        }
        match &tokens[position] {
            TokenTree::Ident(word) if *word == "struct" || *word == "enum" => {
                if is_deserialized(&attributes)
                    && !has_word(&attributes, "transparent")
                    && let Some(TokenTree::Ident(name)) = tokens.get(position + 1)
                    && let Some(body) = body_behind(tokens, position + 2)
                {
                    let section = format!("{crate_name} {name}");
                    let names = match *word == "struct" {
                        true => names_of_fields(body),
                        false => names_of_variants(body, has_word(&attributes, "rename_all")),
                    };
                    let accepts_others = !names.is_empty() && !has_word(&attributes, "deny_unknown_fields");
                    let others = accepts_others.then(|| OTHER_KEYS.to_owned());
                    inputs.extend(names.into_iter().chain(others).map(|name| Input::new(&section, name)));
                }
                attributes.clear();
            }
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                add_items(&inner, crate_name, inputs);
                // The parentheses of `pub(crate)` stand between attributes and their item.
                if group.delimiter() == Delimiter::Brace {
                    attributes.clear();
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => attributes.clear(),
            _ => {}
        }
        position += 1;
    }
}

/// Returns the braces of an item whose name stands before a position; `None` for an item without fields that have names.
fn body_behind(tokens: &[TokenTree], start: usize) -> Option<&Group> {
    for token in &tokens[start..] {
        match token {
            TokenTree::Group(group) => return (group.delimiter() == Delimiter::Brace).then_some(group),
            TokenTree::Punct(punct) if punct.as_char() == ';' => return None,
            _ => {}
        }
    }
    None
}

fn is_deserialized(attributes: &[TokenStream]) -> bool {
    has_word(attributes, "derive") && has_word(attributes, "Deserialize")
}

/// Returns true if an attribute has a word, at any depth.
fn has_word(attributes: &[TokenStream], word: &str) -> bool {
    fn has(stream: &TokenStream, word: &str) -> bool {
        stream.clone().into_iter().any(|token| match token {
            TokenTree::Ident(found) => found == word,
            TokenTree::Group(group) => has(&group.stream(), word),
            _ => false,
        })
    }
    attributes.iter().any(|attribute| has(attribute, word))
}

/// Returns the name that `#[serde(rename = "…")]` gives to a field or a variant.
fn renamed(attributes: &[TokenStream]) -> Option<String> {
    let texts = attributes.iter().map(|attribute| attribute.to_string().replace(' ', ""));
    let texts: Vec<String> = texts.filter(|text| text.starts_with("serde(")).collect();
    let rest = texts.iter().find_map(|text| text.split_once("rename=\""))?.1;
    Some(rest.split('"').next().unwrap_or_default().to_owned())
}

/// A member of the body of a structure or an enumeration.
struct Member {
    name: String,
    /// The braces of a variant with fields.
    body: Option<Group>,
}

/// Returns the members in braces, without those that are not deserialised. `name_of` returns the name of one without a name for
/// serde.
fn members(body: &Group, name_of: impl Fn(String) -> String) -> Vec<Member> {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let mut found = Vec::new();
    let mut position = 0;
    while position < tokens.len() {
        let mut attributes = Vec::new();
        while let Some((attribute, n_tokens)) = attribute_at(&tokens, position) {
            attributes.push(attribute.stream());
            position += n_tokens;
        }
        let end = end_of_member(&tokens, position);
        let member = &tokens[position..end];
        position = end + 1;
        let is_skipped = ["skip", "skip_deserializing"].iter().any(|word| has_word(&attributes, word));
        assert!(
            !has_word(&attributes, "flatten"),
            "fields of a flattened type are not derived: give it fields of its own"
        );
        let mut words = member.iter().filter_map(|token| match token {
            TokenTree::Ident(word) if *word != "pub" => Some(word.to_string()),
            _ => None,
        });
        let Some(name) = words.next().filter(|_| !is_skipped) else { continue };
        let braces = member.iter().find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.clone()),
            _ => None,
        });
        found.push(Member { name: renamed(&attributes).unwrap_or_else(|| name_of(name)), body: braces });
    }
    found
}

/// Returns the position of the comma behind a member, or of the end. A comma between angle brackets is part of a type.
fn end_of_member(tokens: &[TokenTree], start: usize) -> usize {
    let mut depth = 0;
    for (position, token) in tokens.iter().enumerate().skip(start) {
        if let TokenTree::Punct(punct) = token {
            match punct.as_char() {
                '<' => depth += 1,
                '>' => depth -= 1,
                ',' if depth == 0 => return position,
                _ => {}
            }
        }
    }
    tokens.len()
}

fn names_of_fields(body: &Group) -> Vec<String> {
    members(body, |name| name).into_iter().map(|member| member.name).collect()
}

/// Returns the fields of variants. `is_snake_case` is true if the enumeration renames all its variants, always to that case.
fn names_of_variants(body: &Group, is_snake_case: bool) -> Vec<String> {
    let variants = members(body, |name| if is_snake_case { snake_case(&name) } else { name });
    let mut names = Vec::new();
    for Member { name, body } in variants {
        let fields = body.as_ref().map(names_of_fields).unwrap_or_default();
        names.extend(fields.into_iter().map(|field| format!("{name}.{field}")));
    }
    names
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for (position, letter) in name.char_indices() {
        if letter.is_uppercase() && 0 < position {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
