//! `import "common.ct";`: inserts the items of another script, once per script even if imported several times.
//!
//! ```text
//! calls.ct:    import "lib/common.ct"; BEGIN { hello() }
//! common.ct:   macro hello() { printf("hello\n") }
//! ```
//!
//! Imported texts become further files of the source, so that diagnostics can show them. Not here: locating the files; the caller
//! implements [`Files`].

use crate::diagnostics::Diagnostics;
use crate::source::span::Source;
use crate::syntax::ast::{Item, Name};
use crate::syntax::parse::parse_file;

/// A script that an import names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedScript {
    /// Name in messages, the same for all scripts that import the file.
    pub name: String,
    /// Text.
    pub text: String,
}

/// Finds imported scripts.
pub trait Files {
    /// The scripts at `path`, relative to the file `from`: one, or all of a folder.
    ///
    /// # Errors
    /// No script was found; the error is the reason.
    fn import(&self, from: &str, path: &str) -> Result<Vec<ImportedScript>, String>;
}

/// Adds all imported files to the source, including their imports.
pub fn load(src: &mut Source, files: &dyn Files, diags: &mut Diagnostics) {
    let mut importers = vec![None];
    let mut at = 0;
    while at < src.files().len() {
        for path in imports(src, at) {
            let from = src.files()[at].name.clone();
            match files.import(&from, &path.node) {
                Ok(found) => {
                    found.into_iter().for_each(|file| add(src, &mut importers, at, &path, file, diags))
                }
                Err(reason) => {
                    let message = format!("cannot import `{}`: {reason}", path.node);
                    diags.error("E0038", path.span, message);
                }
            }
        }
        at += 1;
    }
}

/// The imports of one file; none for a file with errors, which the parser reports later.
fn imports(src: &Source, file: usize) -> Vec<Name> {
    let items = parse_file(src, file, &[], |_| None, &mut Diagnostics::default());
    let name = |item| match item {
        Item::Import(path) => Some(path),
        _ => None,
    };
    items.into_iter().filter_map(name).collect()
}

fn add(
    src: &mut Source,
    importers: &mut Vec<Option<usize>>,
    by: usize,
    path: &Name,
    file: ImportedScript,
    diags: &mut Diagnostics,
) {
    match src.files().iter().position(|known| known.name == file.name) {
        None => {
            importers.push(Some(by));
            src.add_file(file.name, &file.text);
        }
        Some(known) => {
            let chain: Vec<usize> = std::iter::successors(Some(by), |&at| importers[at]).collect();
            let Some(end) = chain.iter().position(|&at| at == known) else { return };
            let mut names: Vec<&str> =
                chain[..=end].iter().rev().map(|&at| src.files()[at].name.as_str()).collect();
            names.push(&file.name);
            let message = format!("`{}` imports itself", file.name);
            diags
                .error("E0039", path.span, message)
                .note(format!("cycle: {}", names.join(" imports ")))
                .help("move the shared part to another script");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::render;

    struct Literal(&'static [(&'static str, &'static str)]);

    impl Files for Literal {
        fn import(&self, _: &str, path: &str) -> Result<Vec<ImportedScript>, String> {
            let found = self.0.iter().find(|(name, _)| *name == path).ok_or("no such file")?;
            Ok(vec![ImportedScript { name: found.0.into(), text: found.1.into() }])
        }
    }

    fn read(main: &str, files: &'static [(&'static str, &'static str)]) -> (Option<usize>, String) {
        let mut src = Source::new("main.ct", main);
        let mut diags = Diagnostics::default();
        load(&mut src, &Literal(files), &mut diags);
        let items = crate::parse(&src, &[], &mut diags).map(|script| script.items.len());
        (items, render::render(&diags.list, &src, false))
    }

    #[test]
    fn each_file_is_read_once() {
        let files = &[("a", "import \"c\"; #define A 1"), ("b", "import \"c\";"), ("c", "#define C 3")];
        // Four imports, two definitions, a clause.
        assert_eq!(
            read("import \"a\"; import \"b\"; BEGIN { print(A + C) }", files),
            (Some(7), String::new())
        );
    }

    #[test]
    fn positions_are_in_the_imported_file() {
        let (items, shown) = read("import \"a\";\nBEGIN { }", &[("a", "\n\nBEGIN { print(1 }")]);
        assert_eq!(items, None);
        assert!(shown.contains("--> a:3:17") && shown.contains("3 | BEGIN { print(1 }"), "{shown}");
    }

    #[test]
    fn cycles_and_missing_files_are_reported() {
        let (_, shown) = read("import \"a\";", &[("a", "import \"b\";"), ("b", "// back\nimport \"a\";")]);
        assert!(shown.contains("`a` imports itself") && shown.contains("--> b:2:8"), "{shown}");
        assert!(shown.contains("cycle: a imports b imports a"), "{shown}");
        let (_, shown) = read("import \"none\";", &[]);
        assert!(
            shown.contains("cannot import `none`: no such file") && shown.contains("--> main.ct:1:8"),
            "{shown}"
        );
    }

    #[test]
    fn settings_are_for_the_main_script() {
        let (_, shown) = read("import \"a\"; BEGIN { }", &[("a", "config = { max_strlen = 8 }")]);
        assert!(shown.contains("E0037") && shown.contains("--> a:1:12"), "{shown}");
    }
}
