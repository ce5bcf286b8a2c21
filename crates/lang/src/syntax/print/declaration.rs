//! C declarations in canonical form.

use super::{Printer, print_expr, type_text};
use crate::syntax::ast::*;

impl Printer {
    pub(crate) fn declaration(&mut self, declaration: &Declaration) {
        let typedef = if declaration.names.is_empty() { "" } else { "typedef " };
        self.out.push_str(&"    ".repeat(self.depth));
        self.out.push_str(typedef);
        self.c_type(&declaration.base);
        self.names(&declaration.names);
    }

    /// ` a, *b;` and the end of the line.
    fn names(&mut self, names: &[Declarator]) {
        let names: Vec<String> = names.iter().map(declarator).collect();
        if !names.is_empty() {
            self.out.push(' ');
        }
        self.out.push_str(&names.join(", "));
        self.out.push_str(";\n");
    }

    fn c_type(&mut self, ty: &CType) {
        match ty {
            CType::Named(name) => self.out.push_str(&type_text(name)),
            CType::Compound(compound) => self.compound(compound),
            CType::Enumeration(enumeration) => self.enumeration(enumeration),
        }
    }

    fn compound(&mut self, compound: &Compound) {
        self.out.push_str(if compound.union { "union " } else { "struct " });
        self.open(compound.name.as_ref());
        for member in &compound.members {
            self.out.push_str(&"    ".repeat(self.depth));
            self.c_type(&member.base);
            self.names(&member.names);
        }
        self.close();
        if compound.packed {
            self.out.push_str(" __attribute__((packed))");
        }
        if let Some(align) = compound.align {
            self.out.push_str(&format!(" __attribute__((aligned({align})))"));
        }
    }

    fn enumeration(&mut self, enumeration: &Enumeration) {
        self.out.push_str("enum ");
        self.open(enumeration.name.as_ref());
        for (name, value) in &enumeration.values {
            let value = value.as_ref().map_or(String::new(), |value| format!(" = {}", print_expr(value)));
            self.line(&format!("{}{value},", name.node));
        }
        self.close();
    }

    fn open(&mut self, name: Option<&Name>) {
        if let Some(name) = name {
            self.out.push_str(&format!("{} ", name.node));
        }
        self.out.push_str("{\n");
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.out.push_str(&"    ".repeat(self.depth));
        self.out.push('}');
    }
}

/// `*next`, `values[4]`, `flag : 1`
fn declarator(declarator: &Declarator) -> String {
    let name = declarator.name.as_ref().map_or("", |name| name.node.as_str());
    let dim = |dim: &Option<Expr>| format!("[{}]", dim.as_ref().map(print_expr).unwrap_or_default());
    let dims: String = declarator.dims.iter().map(dim).collect();
    let bits = declarator.bits.as_ref().map_or(String::new(), |bits| format!(" : {}", print_expr(bits)));
    let stars = "*".repeat(declarator.pointers as usize);
    match declarator.function {
        true => format!("{stars}(*{name})(){dims}"),
        false => format!("{stars}{name}{dims}{bits}").trim().to_string(),
    }
}
