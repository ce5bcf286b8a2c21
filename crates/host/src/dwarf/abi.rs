//! Facts of a call that do not follow from its C types alone: arguments passed by reference, and arguments in unknown locations.

use gimli::constants::{
    DW_AT_GNU_vector, DW_AT_artificial, DW_AT_byte_size, DW_AT_calling_convention, DW_AT_defaulted,
    DW_CC_pass_by_reference, DW_CC_pass_by_value, DW_LANG_Ada83, DW_LANG_Ada95, DW_LANG_C,
    DW_LANG_C_plus_plus, DW_LANG_C_plus_plus_03, DW_LANG_C_plus_plus_11, DW_LANG_C_plus_plus_14,
    DW_LANG_C_plus_plus_17, DW_LANG_C_plus_plus_20, DW_LANG_C11, DW_LANG_C17, DW_LANG_C89, DW_LANG_C99,
    DW_LANG_Fortran03, DW_LANG_Fortran08, DW_LANG_Fortran77, DW_LANG_Fortran90, DW_LANG_Fortran95,
    DW_LANG_Mips_Assembler, DW_LANG_ObjC, DW_LANG_ObjC_plus_plus, DW_LANG_Rust, DW_TAG_array_type,
    DW_TAG_inheritance, DW_TAG_member, DW_TAG_subprogram, DwLang,
};
use lang::catalog::debug_info::{Field, Kind, Unsure};

use super::Debug;
use super::c_types::{Ref, is_struct};
use super::entry::Entry;
use super::units::Place;

/// Limit of nesting of classes.
const LEVELS: usize = 16;
/// Suffixes of symbols of function copies whose parameters differ from the original's.
const COPIES: [&str; 4] = [".isra.", ".constprop.", ".part.", ".cold"];
/// Size in bytes of a result that Rust always returns in registers.
const WORD: u32 = 8;

impl Debug {
    /// The language of the unit that contains an entry.
    pub(super) fn language(&self, place: Place) -> DwLang {
        self.units().around(place).map_or(DW_LANG_C, |unit| self.units().language(unit))
    }

    pub(super) fn is_c(&self, place: Place) -> bool {
        matches!(self.language(place), DW_LANG_C | DW_LANG_C89 | DW_LANG_C99 | DW_LANG_C11 | DW_LANG_C17)
    }

    /// Whether values of the type are passed by reference: objects of C++ classes that cannot be copied bit by
    /// bit.
    pub(super) fn by_reference(&self, ty: Place) -> bool {
        self.is_cpp(ty) && self.nontrivial(ty, LEVELS)
    }

    fn is_cpp(&self, place: Place) -> bool {
        is_cpp(self.language(place))
    }

    fn nontrivial(&self, ty: Place, levels: usize) -> bool {
        let Some(levels) = levels.checked_sub(1) else { return false };
        let Some((class, _)) = self.seen_through(ty).filter(|(entry, _)| is_struct(entry)) else {
            return false;
        };
        let convention = class.number(DW_AT_calling_convention);
        let is = |wanted: gimli::DwCc| convention == Some(u64::from(wanted.0));
        if is(DW_CC_pass_by_reference) || is(DW_CC_pass_by_value) {
            return is(DW_CC_pass_by_reference);
        }
        // Some compilers do not emit this attribute. It then follows from the declarations and members of the
        // class.
        self.children(class.place).iter().any(|child| match child.tag {
            DW_TAG_subprogram => self.forbids_copies(&class, child),
            DW_TAG_member if child.name.as_ref().is_some_and(|name| name.starts_with("_vptr")) => true,
            DW_TAG_member | DW_TAG_inheritance if !child.declaration => {
                child.ty.is_some_and(|ty| self.nontrivial(ty, levels))
            }
            _ => false,
        })
    }

    /// Whether the method is a user-provided destructor, or a user-provided copy or move constructor.
    fn forbids_copies(&self, class: &Entry, method: &Entry) -> bool {
        let (Some(name), Some(of)) = (&method.name, &class.name) else { return false };
        if method.has(DW_AT_defaulted) || method.has(DW_AT_artificial) {
            return false;
        }
        let plain = of.split('<').next().unwrap_or(of);
        let copies = || {
            let params = self.params_of(method.place);
            let [_, other] = &params[..] else { return false };
            let target =
                other.ty.and_then(|ty| self.seen_through(ty)).and_then(|(reference, _)| reference.ty);
            target.and_then(|to| self.seen_through(to)).is_some_and(|(to, _)| to.place == class.place)
        };
        name.starts_with('~') || name.split('<').next() == Some(plain) && copies()
    }

    /// The first parameter whose location is unknown, and the reason.
    pub(super) fn unsure(
        &self,
        function: Place,
        symbol: &str,
        params: &[Place],
        ret: Option<Place>,
    ) -> Option<Unsure> {
        let from = |from: usize, why: String| Some(Unsure { from, why });
        if is_copy(symbol) {
            let original = symbol.split('.').next().unwrap_or(symbol);
            return from(
                0,
                format!(
                    "the compiler made this copy of `{original}` with other parameters than those declared"
                ),
            );
        }
        let language = self.language(function);
        if language == DW_LANG_Rust {
            return self.unsure_in_rust(params, ret);
        }
        if !follows_the_abi(language) {
            return from(0, format!("its language ({language}) passes arguments in its own way"));
        }
        let strange = params.iter().position(|ty| self.is_strange(*ty))?;
        let spelled = self.spelled(Some(params[strange]), "");
        from(strange, format!("where a `{spelled}` is passed is not known here"))
    }

    fn is_strange(&self, ty: Place) -> bool {
        matches!(
            self.read_type(Ref::to(ty)).map(|ty| ty.kind),
            None | Some(Kind::Other { .. } | Kind::Array(..))
        ) || self.holds_vector(ty, LEVELS)
    }

    /// Whether the type is a vector, or a struct that is passed like one. Vectors are passed in vector registers,
    /// whatever their elements are; a struct also if it contains a vector and is small or has nothing else.
    fn holds_vector(&self, ty: Place, levels: usize) -> bool {
        let (Some((entry, _)), Some(levels)) = (self.seen_through(ty), levels.checked_sub(1)) else {
            return false;
        };
        let within = |ty: Option<Place>| ty.is_some_and(|ty| self.holds_vector(ty, levels));
        match entry.tag {
            DW_TAG_array_type => entry.has(DW_AT_GNU_vector) || within(entry.ty),
            _ if is_struct(&entry) => {
                let members = self.children(entry.place).into_iter();
                let members = members.filter(|child| matches!(child.tag, DW_TAG_member | DW_TAG_inheritance));
                let held: Vec<bool> = members.map(|member| within(member.ty)).collect();
                let is_small = entry.number(DW_AT_byte_size).is_some_and(|size| size <= 2 * u64::from(WORD));
                if is_small { held.contains(&true) } else { !held.is_empty() && !held.contains(&false) }
            }
            _ => false,
        }
    }

    /// Rust does not define its ABI. Numbers, addresses and slices have always been passed in one or two
    /// registers.
    fn unsure_in_rust(&self, params: &[Place], ret: Option<Place>) -> Option<Unsure> {
        if let Some(ret) = ret.filter(|ret| self.rust_result_is_unsure(*ret)) {
            let why =
                format!("Rust may return a `{}` in registers or in memory", self.spelled(Some(ret), ""));
            return Some(Unsure { from: 0, why });
        }
        let from = params.iter().position(|ty| !self.is_certain_in_rust(*ty))?;
        let why = format!("Rust passes a `{}` in a way of its own", self.spelled(Some(params[from]), ""));
        Some(Unsure { from, why })
    }

    fn rust_result_is_unsure(&self, ty: Place) -> bool {
        let Some((entry, _)) = self.seen_through(ty) else { return false };
        let size = entry.number(DW_AT_byte_size).unwrap_or(0) as u32;
        is_struct(&entry) && size > WORD && size <= 2 * WORD && !self.is_certain_in_rust(ty)
    }

    fn is_certain_in_rust(&self, ty: Place) -> bool {
        let Some(ty) = self.read_type(Ref::to(ty)) else { return false };
        match ty.kind {
            Kind::Struct { size, fields } => size == 0 || self.is_fat_pointer(size, &fields),
            Kind::Other { .. } | Kind::Array(..) => false,
            _ => true,
        }
    }

    /// `&str`, `&[T]`, `&dyn Trait`
    fn is_fat_pointer(&self, size: u32, fields: &[Field]) -> bool {
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        size == 2 * WORD && matches!(names[..], ["data_ptr", "length"] | ["pointer", "vtable"])
    }
}

/// Whether the symbol is of a copy whose parameters differ from the original's.
pub(super) fn is_copy(symbol: &str) -> bool {
    COPIES.iter().any(|end| symbol.contains(end))
}

fn is_cpp(language: DwLang) -> bool {
    matches!(
        language,
        DW_LANG_C_plus_plus
            | DW_LANG_C_plus_plus_03
            | DW_LANG_C_plus_plus_11
            | DW_LANG_C_plus_plus_14
            | DW_LANG_C_plus_plus_17
            | DW_LANG_C_plus_plus_20
            | DW_LANG_ObjC_plus_plus
    )
}

/// Whether functions of the language follow the ABI of C.
fn follows_the_abi(language: DwLang) -> bool {
    is_cpp(language)
        || matches!(
            language,
            DW_LANG_C
                | DW_LANG_C89
                | DW_LANG_C99
                | DW_LANG_C11
                | DW_LANG_C17
                | DW_LANG_ObjC
                | DW_LANG_Ada83
                | DW_LANG_Ada95
                | DW_LANG_Fortran77
                | DW_LANG_Fortran90
                | DW_LANG_Fortran95
                | DW_LANG_Fortran03
                | DW_LANG_Fortran08
                | DW_LANG_Mips_Assembler
        )
}
