//! Index of a file's symbols by name: a script may name dozens of functions of a library with thousands of symbols.

use crate::catalog::Function;

/// The index.
pub struct Symbols<'a> {
    functions: &'a [Function],
    /// Names and the indexes of their functions, sorted.
    by_name: Vec<(&'a str, usize)>,
}

impl<'a> Symbols<'a> {
    /// Builds the index of a file's functions.
    pub fn new(functions: &'a [Function]) -> Symbols<'a> {
        let names = functions.iter().enumerate();
        let mut by_name: Vec<_> =
            names.flat_map(|(at, f)| f.names.iter().map(move |name| (name.as_str(), at))).collect();
        // The names are almost sorted.
        by_name.sort();
        Symbols { functions, by_name }
    }

    /// Whether the file has a symbol with this name.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.binary_search_by(|(known, _)| known.cmp(&name)).is_ok()
    }

    /// The functions with a name that begins with `prefix`, without duplicates, in the order of the file's list.
    pub fn starting(&self, prefix: &str) -> impl Iterator<Item = &'a Function> {
        let first = self.by_name.partition_point(|(name, _)| *name < prefix);
        let names = self.by_name[first..].iter().take_while(|(name, _)| name.starts_with(prefix));
        let mut functions: Vec<usize> = names.map(|(_, function)| *function).collect();
        functions.sort_unstable();
        functions.dedup();
        functions.into_iter().map(|at| &self.functions[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(names: &[&str]) -> Function {
        Function { names: names.iter().map(ToString::to_string).collect(), version: None, offset: 0 }
    }

    #[test]
    fn functions_are_found_by_any_of_their_names() {
        let functions = [function(&["cuInit"]), function(&["cuMemAlloc", "alias"]), function(&["cuMemFree"])];
        let symbols = Symbols::new(&functions);
        let firsts = |prefix| symbols.starting(prefix).map(|f| f.names[0].clone()).collect::<Vec<_>>();
        assert_eq!(firsts("cuMem"), ["cuMemAlloc", "cuMemFree"]);
        assert_eq!(firsts("al"), ["cuMemAlloc"]);
        assert_eq!(firsts("").len(), 3);
        assert!(firsts("x").is_empty());
        assert!(symbols.has("alias") && !symbols.has("cuMem"));
    }
}
