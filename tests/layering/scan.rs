//! What a source file names: every path outside of its tests, with `use` trees written out.
//!
//! It works on tokens rather than on a syntax tree, so that what macros expand to counts as well:
//! a `libc::` in the body of a `macro_rules!` is as much a use of libc as any other.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// A path as written, `crate::`, `self::` and `super::` resolved as far as the file's place in the
/// crate tells: a path into the crate starts with `crate`. A crate or the crate itself that is
/// brought in whole (`use libc;`, `extern crate std;`, `use crate as c;`) counts as a glob of it.
#[derive(Debug, PartialEq)]
pub struct Named {
    pub line: usize,
    pub path: Vec<String>,
}

#[derive(Debug, Default, PartialEq)]
pub struct Scan {
    pub paths: Vec<Named>,
    /// Lines with the keyword `unsafe`, tests included.
    pub unsafe_at: Vec<usize>,
    /// `#[cfg(test)] mod name;`: names of modules that are tests as a whole.
    pub test_modules: Vec<String>,
}

/// Scans `text`, the file of module `module` (empty for lib.rs).
pub fn scan(text: &str, module: &[String]) -> Result<Scan, String> {
    let tokens: TokenStream = text.parse().map_err(|e| format!("not Rust: {e}"))?;
    let mut scan = Scan::default();
    scan.walk(tokens, &mut module.to_vec(), false);
    Ok(scan)
}

impl Scan {
    fn walk(&mut self, tokens: TokenStream, module: &mut Vec<String>, test: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(p) if p.as_char() == '#' && is_test_only(tokens.get(at + 1)) => {
                    let end = end_of_item(&tokens, at);
                    if let Some(name) = module_without_body(&tokens[at..end]) {
                        self.test_modules.push(name);
                    }
                    // Tests may name anything; only `unsafe` is looked for in them.
                    for group in tokens[at..end].iter().filter_map(as_group) {
                        self.walk(group.stream(), module, true);
                    }
                    at = end;
                }
                TokenTree::Ident(i) if *i == "mod" && body_of_module(&tokens, at).is_some() => {
                    let (name, body) = body_of_module(&tokens, at).expect("just seen");
                    module.push(name);
                    self.walk(body, module, test);
                    module.pop();
                    at += 3;
                }
                TokenTree::Ident(i) if *i == "unsafe" => {
                    self.unsafe_at.push(i.span().start().line);
                    at += 1;
                }
                TokenTree::Ident(i) => {
                    let mut found = Vec::new();
                    let brings_in = *i == "use" || is_extern_crate(&tokens, at);
                    if brings_in {
                        at += if *i == "use" { 1 } else { 2 };
                    }
                    at += if is_colons(&tokens, at) { 2 } else { 0 };
                    at = read_path(&tokens, at, &mut Vec::new(), &mut found).max(at + 1);
                    if !test {
                        self.keep(found, brings_in, module);
                    }
                }
                TokenTree::Group(g) => {
                    self.walk(g.stream(), module, test);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    fn keep(&mut self, found: Vec<(Vec<String>, usize)>, brings_in: bool, module: &[String]) {
        for (path, line) in found {
            let mut path = resolve(path, module);
            if path.last().is_some_and(|s| s == "self") {
                path.pop();
            }
            if brings_in && path.len() == 1 {
                path.push("*".to_owned());
            }
            self.paths.push(Named { line, path });
        }
    }
}

/// Reads the path at `at` behind `prefix`, or the `use` tree it ends in, and returns where it
/// ends.
fn read_path(
    tokens: &[TokenTree],
    at: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let (name, line) = match tokens.get(at) {
        Some(TokenTree::Ident(i)) => (plain(i), i.span().start().line),
        Some(TokenTree::Punct(p)) if p.as_char() == '*' && !prefix.is_empty() => {
            ("*".to_owned(), p.span().start().line)
        }
        Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace && !prefix.is_empty() => {
            let inner: Vec<TokenTree> = g.stream().into_iter().collect();
            let mut next = 0;
            while next < inner.len() {
                next = read_path(&inner, next, prefix, found).max(next + 1);
            }
            return at + 1;
        }
        _ => return at,
    };
    prefix.push(name);
    let mut end = at + 1;
    let mut longer = false;
    if is_colons(tokens, end) {
        let before = found.len();
        end = read_path(tokens, end + 2, prefix, found);
        longer = found.len() > before;
    }
    if !longer {
        found.push((prefix.clone(), line));
    }
    prefix.pop();
    end
}

fn is_extern_crate(tokens: &[TokenTree], at: usize) -> bool {
    let word =
        |at: usize, word: &str| matches!(tokens.get(at), Some(TokenTree::Ident(i)) if *i == word);
    word(at, "extern") && word(at + 1, "crate")
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let colon =
        |t: Option<&TokenTree>| matches!(t, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(tokens.get(at)) && colon(tokens.get(at + 1))
}

fn plain(ident: &Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

fn resolve(path: Vec<String>, module: &[String]) -> Vec<String> {
    let supers = path.iter().take_while(|s| *s == "super").count();
    let own = path.first().is_some_and(|s| s == "self");
    if supers == 0 && !own {
        return path;
    }
    let keep = module.len().saturating_sub(supers);
    let rest = &path[if own { 1 } else { supers }..];
    let full = ["crate".to_owned()].into_iter();
    full.chain(module[..keep].iter().cloned())
        .chain(rest.iter().cloned())
        .collect()
}

fn as_group(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(g) => Some(g),
        _ => None,
    }
}

/// Whether the group behind a `#` is a `cfg` that holds in tests only.
fn is_test_only(attribute: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(g)) = attribute else {
        return false;
    };
    let inner: Vec<TokenTree> = g.stream().into_iter().collect();
    match &inner[..] {
        [TokenTree::Ident(cfg), TokenTree::Group(condition)] if *cfg == "cfg" => {
            implies_test(condition.stream())
        }
        _ => false,
    }
}

/// `test`, or an `all` with such a condition in it.
fn implies_test(condition: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = condition.into_iter().collect();
    let mut conditions = tokens.split(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ','));
    conditions.any(|c| match c {
        [TokenTree::Ident(i)] => *i == "test",
        [TokenTree::Ident(i), TokenTree::Group(g)] if *i == "all" => implies_test(g.stream()),
        _ => false,
    })
}

/// Where the item ends whose first attribute starts at `at`: behind its `;` or its braces. A `use`
/// has braces before its `;`.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let is_use = tokens[at..]
        .iter()
        .find_map(|t| match t {
            TokenTree::Ident(i) if *i == "use" => Some(true),
            TokenTree::Ident(i) if *i != "pub" => Some(false),
            _ => None,
        })
        .unwrap_or(false);
    let ends = |t: &TokenTree| match t {
        TokenTree::Punct(p) => p.as_char() == ';',
        TokenTree::Group(g) => g.delimiter() == Delimiter::Brace && !is_use,
        _ => false,
    };
    tokens[at..]
        .iter()
        .position(ends)
        .map_or(tokens.len(), |n| at + n + 1)
}

fn module_without_body(item: &[TokenTree]) -> Option<String> {
    match item {
        [
            ..,
            TokenTree::Ident(keyword),
            TokenTree::Ident(name),
            TokenTree::Punct(end),
        ] if *keyword == "mod" && end.as_char() == ';' => Some(plain(name)),
        _ => None,
    }
}

fn body_of_module(tokens: &[TokenTree], at: usize) -> Option<(String, TokenStream)> {
    match (tokens.get(at + 1), tokens.get(at + 2)) {
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(g)))
            if g.delimiter() == Delimiter::Brace =>
        {
            Some((plain(name), g.stream()))
        }
        _ => None,
    }
}
