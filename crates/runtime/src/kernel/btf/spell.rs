//! Writes types of the kernel as C declarations.

use super::format::{
    KIND_ARRAY, KIND_CONST, KIND_ENUM, KIND_ENUM64, KIND_FORWARD, KIND_POINTER, KIND_PROTOTYPE,
    KIND_RESTRICT, KIND_STRUCT, KIND_TYPE_TAG, KIND_UNION, KIND_VOLATILE, string, word,
};
use super::type_index::{Field, Kind, TypeIndex};

/// Bit in the info of a forward declaration of a union.
const UNION: u32 = 1 << 31;

/// `char[16]` and `comm` as `char comm[16]`; `void (*)(int)` and `f` as `void (*f)(int)`.
pub fn variable(declared: &str, name: &str) -> String {
    if let Some((before, after)) = declared.split_once("(*)") {
        return format!("{before}(*{name}){after}");
    }
    let (of, dimensions) = declared.split_at(declared.find('[').unwrap_or(declared.len()));
    let gap = if of.ends_with('*') { "" } else { " " };
    format!("{of}{gap}{name}{dimensions}")
}

impl TypeIndex<'_> {
    /// `struct task_struct` for a name, and its members: `char comm[16];`
    pub(super) fn declaration(&self, name: &str) -> Option<(String, Vec<String>)> {
        let id = self.named(name)?;
        let members = match self.describe(id)?.kind {
            Kind::Struct { fields, .. } => {
                let bits =
                    |bits: Option<(u8, u8)>| bits.map_or(String::new(), |(_, count)| format!(":{count}"));
                let field = |field: Field| {
                    format!("{}{};", variable(&self.spelled(field.ty, DEPTH), &field.name), bits(field.bits))
                };
                fields.into_iter().map(field).collect()
            }
            Kind::Enum { variants, .. } => {
                variants.into_iter().map(|(name, value)| format!("{name} = {value},")).collect()
            }
            _ => Vec::new(),
        };
        Some((self.spelled(id, DEPTH), members))
    }

    /// A variable or function of a type in C: `char comm[16]`
    pub(super) fn declared(&self, id: u32, name: &str) -> String {
        variable(&self.spelled(id, DEPTH), name)
    }

    /// A type in C; `depth` limits the chains of an invalid file.
    fn spelled(&self, id: u32, depth: usize) -> String {
        let Some((head, tail)) = self.at(id).filter(|_| depth > 0) else { return "void".into() };
        let name = string(self.strings, head.name).unwrap_or_default();
        let of = |id: u32| self.spelled(id, depth - 1);
        let tagged =
            |tag: &str| if name.is_empty() { format!("{tag} {{...}}") } else { format!("{tag} {name}") };
        let is_pointer = |id: u32| self.at(id).is_some_and(|(head, _)| head.kind() == KIND_POINTER);
        let qualified = |qualifier: &str| match is_pointer(head.type_id) {
            true => format!("{}{qualifier}", of(head.type_id)),
            false => format!("{qualifier} {}", of(head.type_id)),
        };
        match head.kind() {
            KIND_STRUCT => tagged("struct"),
            KIND_UNION => tagged("union"),
            KIND_ENUM | KIND_ENUM64 => tagged("enum"),
            KIND_FORWARD => tagged(if head.info & UNION != 0 { "union" } else { "struct" }),
            KIND_CONST => qualified("const"),
            KIND_VOLATILE => qualified("volatile"),
            KIND_RESTRICT | KIND_TYPE_TAG => of(head.type_id),
            KIND_POINTER => match of(head.type_id) {
                to if to.contains("(*)") => to,
                to if to.ends_with('*') => format!("{to}*"),
                to => format!("{to} *"),
            },
            KIND_ARRAY => {
                let numbers = word(self.data, *tail).zip(word(self.data, tail + 8));
                let (element, count) = numbers.unwrap_or_default();
                let element = of(element);
                let (inner, outer) = element.split_at(element.find('[').unwrap_or(element.len()));
                format!("{inner}[{count}]{outer}")
            }
            KIND_PROTOTYPE => {
                let types = (0..head.members() as usize).filter_map(|n| word(self.data, tail + 8 * n + 4));
                let types: Vec<String> = types.map(of).collect();
                format!("{} (*)({})", of(head.type_id), types.join(", "))
            }
            _ => name,
        }
    }
}

/// Longer chains of typedefs, pointers and qualifiers occur only in invalid files.
const DEPTH: usize = 32;

#[cfg(test)]
mod tests {
    use super::variable;

    #[test]
    fn a_name_is_within_its_declaration() {
        for (declared, expected) in [
            ("pid_t", "pid_t x"),
            ("char[16]", "char x[16]"),
            ("const char *", "const char *x"),
            ("void (*)(int)", "void (*x)(int)"),
            ("__data_loc char[]", "__data_loc char x[]"),
        ] {
            assert_eq!(variable(declared, "x"), expected);
        }
    }

    #[test]
    fn structs_of_the_running_kernel() {
        if !crate::kernel::btf::is_there() {
            eprintln!("skipped: no kernel BTF");
            return;
        }
        let (head, members) = crate::kernel::btf::declaration("task_struct").expect("every kernel has it");
        assert_eq!(head, "struct task_struct");
        for member in
            ["pid_t pid;", "char comm[16];", "struct task_struct *real_parent;", "struct list_head tasks;"]
        {
            assert!(members.iter().any(|found| found == member), "{member}: {members:#?}");
        }
    }
}
