//! The imports of a Rust file from its own crate, parsed from its text.

use std::collections::{BTreeMap, BTreeSet};

/// The segments of a path as it is written: `crate`, `data`, `Error`.
pub(super) type Path = Vec<String>;

/// The imports, re-exports and definitions of one file.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// The paths that count as imports: those of private `use` declarations, and those in the code that start with
    /// `crate`, `self` or `super`.
    pub(super) uses: Vec<Path>,
    /// The names that `use` declarations give to paths, including re-exports.
    pub(super) names: BTreeMap<String, Path>,
    /// The modules from which `use` declarations import all names.
    pub(super) globs: Vec<Path>,
    /// The items that are defined at the top level of the file.
    pub(super) items: BTreeSet<String>,
}

impl Imports {
    /// Parses a file. Test code is skipped, because it may import from anywhere and nothing imports from it.
    pub(super) fn of(text: &str) -> Self {
        let tokens = tokens(text);
        Reader { tokens: &tokens, at: 0, depth: 0, modules: Vec::new(), found: Self::default() }.read()
    }
}

/// The parser of one file: its position in the tokens, and the imports found so far.
struct Reader<'a> {
    tokens: &'a [&'a str],
    at: usize,
    /// The number of open braces.
    depth: usize,
    /// The number of open braces inside each open inline module, outermost module first.
    modules: Vec<usize>,
    found: Imports,
}

/// One path of a `use` declaration, and the name that the declaration gives to it in the file. The name is `*` if the
/// declaration imports all names of the module at this path.
struct Leaf {
    path: Path,
    name: String,
}

impl<'a> Reader<'a> {
    fn read(mut self) -> Imports {
        while let Some(token) = self.token(0) {
            match token {
                "#" if self.starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) => self.skip_item(),
                "{" => self.depth += 1,
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    self.modules.retain(|&depth| depth <= self.depth);
                }
                "mod" if self.token(2) == Some("{") => {
                    self.define();
                    self.modules.push(self.depth + 1);
                }
                // `use<'a>` lists the lifetimes of an `impl Trait` and imports nothing.
                "use" if self.token(1) != Some("<") => {
                    self.read_use();
                    continue;
                }
                "const" if self.token(1) == Some("fn") => {}
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => self.define(),
                "crate" | "self" | "super" if self.token(1) == Some("::") && !self.is_visibility() => {
                    let path = self.read_path();
                    self.add_use(path);
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        self.found
    }

    fn token(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn starts_with(&self, expected: &[&str]) -> bool {
        self.tokens[self.at..].starts_with(expected)
    }

    /// Returns true if the path at the current position belongs to a visibility such as `pub(in crate::a)`.
    fn is_visibility(&self) -> bool {
        self.tokens[..self.at].ends_with(&["pub", "(", "in"])
    }

    /// Skips to the end of the item that starts at the current position with an attribute.
    fn skip_item(&mut self) {
        let mut open = 0_usize;
        while let Some(token) = self.token(0) {
            match token {
                "{" => open += 1,
                "}" if open <= 1 => return,
                "}" => open -= 1,
                ";" if open == 0 => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Records the item whose keyword is at the current position, if it is at the top level of the file.
    fn define(&mut self) {
        if self.depth == 0 {
            self.found.items.extend(self.token(1).map(str::to_owned));
        }
    }

    fn read_use(&mut self) {
        let before = &self.tokens[..self.at];
        let is_public = before.ends_with(&["pub"]) || before.ends_with(&[")"]) && has_visibility(before);
        self.at += 1;
        let mut leaves = Vec::new();
        self.read_tree(&Path::new(), &mut leaves);
        for Leaf { path, name } in leaves {
            if self.depth == 0 && name == "*" {
                self.found.globs.push(path.clone());
            } else if self.depth == 0 {
                self.found.names.insert(name, path.clone());
            }
            if !is_public {
                self.add_use(path);
            }
        }
    }

    /// Parses one tree of a `use` declaration: `a::b`, `a as b`, `a::*` or `a::{b, c}`.
    fn read_tree(&mut self, prefix: &Path, leaves: &mut Vec<Leaf>) {
        let mut path = prefix.clone();
        while let Some(token) = self.token(0) {
            self.at += 1;
            match token {
                "::" => {}
                "{" => {
                    while !matches!(self.token(0), None | Some("}" | ";")) {
                        self.read_tree(&path, leaves);
                        if self.token(0) == Some(",") {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "," | ";" | "}" => {
                    self.at -= 1;
                    break;
                }
                "*" => {
                    leaves.push(Leaf { path, name: "*".into() });
                    return;
                }
                "as" => {
                    let name = self.token(0).unwrap_or_default().to_owned();
                    self.at += 1;
                    leaves.push(Leaf { path, name });
                    return;
                }
                "self" if !path.is_empty() => {}
                segment => path.push(segment.to_owned()),
            }
        }
        let name = path.last().cloned().unwrap_or_default();
        leaves.push(Leaf { path, name });
    }

    /// Parses the path in the code that starts at the current position.
    fn read_path(&mut self) -> Path {
        let mut path = Path::new();
        while let Some(segment) = self.token(0).filter(|token| is_word(token)) {
            path.push(segment.to_owned());
            self.at += 1;
            if self.token(0) != Some("::") {
                break;
            }
            self.at += 1;
        }
        path
    }

    /// Records a path. A path in an inline module is converted to be relative to the file's module, or ignored if it
    /// does not leave the inline module.
    fn add_use(&mut self, mut path: Path) {
        for _ in &self.modules {
            match path.first().map(String::as_str) {
                Some("super") => path.remove(0),
                Some("crate") => break,
                _ => return,
            };
        }
        if !self.modules.is_empty() && path.first().is_some_and(|first| first != "crate" && first != "super")
        {
            path.insert(0, "self".into());
        }
        if !path.is_empty() {
            self.found.uses.push(path);
        }
    }
}

/// Returns true if these tokens end with a visibility in parentheses, such as `pub(crate)`.
fn has_visibility(tokens: &[&str]) -> bool {
    let open = tokens.iter().rposition(|&token| token == "(");
    open.is_some_and(|open| tokens[..open].ends_with(&["pub"]))
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Splits text into tokens: words, `::` and other single characters. Comments, strings and character literals are
/// skipped.
pub(crate) fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let n_bytes = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' | 'b' | 'c' if raw_string(rest).is_some() => raw_string(rest).unwrap_or(1),
            '\'' => character(rest),
            _ if is_word(rest) => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push(&rest[..end]);
                end
            }
            _ => {
                let end = if rest.starts_with("::") { 2 } else { first.len_utf8() };
                if !first.is_whitespace() {
                    tokens.push(&rest[..end]);
                }
                end
            }
        };
        rest = &rest[n_bytes..];
    }
    tokens
}

/// Returns the length in bytes of a block comment. Block comments may be nested.
fn block_comment(text: &str) -> usize {
    let mut open = 0_usize;
    for (at, _) in text.char_indices() {
        if text[at..].starts_with("/*") {
            open += 1;
        } else if at > 0 && text[..at].ends_with("*/") {
            open -= 1;
            if open == 0 {
                return at;
            }
        }
    }
    text.len()
}

/// Returns the length in bytes of a string literal that starts with its quote.
fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length in bytes of the raw string at the start of the text, or `None` if there is none. The prefix of
/// another kind of string is a separate token.
fn raw_string(text: &str) -> Option<usize> {
    let marked =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let n_marks = marked.len() - marked.trim_start_matches('#').len();
    let inside = marked[n_marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(n_marks));
    let n_inside = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(text.len() - inside.len() + n_inside)
}

/// Returns the length in bytes of a character literal; for a lifetime, the length of its apostrophe.
fn character(text: &str) -> usize {
    let mut inside = text.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), Some(escaped)) => {
            let after = 2 + escaped.len_utf8();
            text[after..].find('\'').map_or(text.len(), |at| after + at + 1)
        }
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(text: &str) -> Vec<String> {
        Imports::of(text).uses.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn reads_trees_of_imports() {
        let text = "use crate::a::{self, b::C, d::{E as F, *}};\nuse super::g;\nuse std::fmt;\n";
        assert_eq!(
            uses(text),
            ["crate::a", "crate::a::b::C", "crate::a::d::E", "crate::a::d", "super::g", "std::fmt"]
        );
        let names = Imports::of(text).names;
        assert_eq!(names["F"], ["crate", "a", "d", "E"]);
        assert_eq!(Imports::of(text).globs, [["crate", "a", "d"]]);
    }

    #[test]
    fn reads_paths_in_the_code() {
        let text =
            "fn f(x: &'static crate::a::B) -> self::C { super::d::e::<u8>('\\'', '{', \"crate::no\") }";
        assert_eq!(uses(text), ["crate::a::B", "self::C", "super::d::e"]);
    }

    #[test]
    fn ignores_comments_strings_re_exports_and_tests() {
        let text = "// crate::a\n/* crate::b /* crate::c */ crate::d */\n/// [`crate::e`]\npub use crate::f::G;\n\
            pub(crate) use self::h::I;\npub(in crate::j) fn k() -> &str { r#\"crate::\"l\"# }\n\
            #[cfg(test)]\nmod tests { use super::*; fn m() { crate::n(); } }\n#[cfg(test)]\nuse crate::o;\n";
        assert_eq!(uses(text), [""; 0]);
        assert_eq!(Imports::of(text).names["G"], ["crate", "f", "G"]);
    }

    #[test]
    fn converts_paths_of_inline_modules_to_the_file() {
        let text =
            "mod inner { use super::{a, super::b}; use crate::c; fn d() { self::e(); } } use super::f;";
        assert_eq!(uses(text), ["self::a", "super::b", "crate::c", "super::f"]);
    }

    #[test]
    fn lists_the_items_of_a_file() {
        let text = "pub struct A; enum B { C } const fn d() { fn e() {} } mod f { fn g() {} } type H = u8;";
        assert_eq!(Vec::from_iter(Imports::of(text).items), ["A", "B", "H", "d", "f"]);
    }
}
