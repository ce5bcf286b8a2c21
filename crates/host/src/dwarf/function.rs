//! Parameters and result of a function.

use gimli::constants::{
    DW_AT_calling_convention, DW_CC_nocall, DW_TAG_formal_parameter, DW_TAG_unspecified_parameters,
};
use lang::catalog::debug_info::{Absent, Function, Param};

use super::Debug;
use super::abi::is_copy;
use super::c_types::Ref;
use super::entry::Entry;
use super::units::Place;

/// Parameters that compilers add to constructors. Only the entry of a copy shows which of them the copy takes.
const ADDED: [&str; 2] = ["__in_chrg", "__vtt_parm"];

impl Debug {
    pub(super) fn read_function(&self, address: u64, symbol: &str) -> Result<Function, Absent> {
        let unit = self.units().of_code(address).ok_or(Absent::NotDescribed)?;
        if let Some(why) = self.units().missing(unit) {
            return Err(Absent::Unusable(why.to_owned()));
        }
        let scan = self.scan(unit);
        let entries = scan.functions.get(&address).ok_or(Absent::NotDescribed)?;
        // The linker may have merged functions with identical code.
        let named = entries.iter().find(|place| self.is_called(**place, symbol));
        self.function_at(*named.unwrap_or(&entries[0]), symbol).ok_or(Absent::NotDescribed)?
    }

    fn is_called(&self, place: Place, symbol: &str) -> bool {
        let plain = symbol.split('.').next().unwrap_or(symbol);
        let chain = self.chain(place);
        let linked = chain.iter().find_map(|entry| entry.linked.as_deref());
        match linked {
            Some(linked) => linked == plain,
            None => chain.iter().find_map(|entry| entry.name.as_deref()) == Some(plain),
        }
    }

    fn function_at(&self, place: Place, symbol: &str) -> Option<Result<Function, Absent>> {
        let chain = self.chain(place);
        let own = chain.first()?;
        if own.number(DW_AT_calling_convention) == Some(u64::from(DW_CC_nocall.0)) {
            let why = "the compiler has changed how this function is called (`DW_CC_nocall`)";
            return Some(Err(Absent::Unusable(why.into())));
        }
        let ret = chain.iter().find_map(|entry| entry.ty);
        let params = self.params(&chain, is_copy(symbol));
        let types: Vec<Place> = params.iter().map(|(_, ty)| *ty).collect::<Option<_>>()?;
        let unsure = self.unsure(place, symbol, &types, ret);
        let name = chain.iter().find(|entry| entry.name.is_some());
        let last = chain.last()?;
        let full = name.and_then(|entry| entry.name.as_deref()).map(|name| self.scoped(last.place, name));
        let spelled = params.iter().map(|(name, ty)| self.spelled(*ty, name));
        let variadic = chain.iter().any(|entry| {
            self.children(entry.place).iter().any(|child| child.tag == DW_TAG_unspecified_parameters)
        });
        let list: Vec<String> = spelled.chain(variadic.then(|| "...".to_owned())).collect();
        let list = if list.is_empty() && self.is_c(place) { "void".to_owned() } else { list.join(", ") };
        let declared = self.spelled(ret, &format!("{}({list})", full.as_deref().unwrap_or(symbol)));
        Some(Ok(Function {
            declared,
            params: params
                .into_iter()
                .zip(&types)
                .map(|((name, _), ty)| Param { name, ty: self.passed(*ty).id(self.file) })
                .collect(),
            hidden: ret.is_some_and(|ret| self.by_reference(ret)),
            ret: ret.filter(|ret| self.seen_through(*ret).is_some()).map(|ret| Ref::to(ret).id(self.file)),
            unsure,
        }))
    }

    /// The type of the value that is passed for a parameter: its own type, or a pointer to it.
    fn passed(&self, ty: Place) -> Ref {
        if self.by_reference(ty) { Ref::pointer_to(ty) } else { Ref::to(ty) }
    }

    /// Names and types of the parameters. The entry of the running copy is used if it has all of them. The
    /// declaration in a class has no names, and has parameters that not all copies take.
    fn params(&self, chain: &[Entry], changed: bool) -> Vec<(String, Option<Place>)> {
        let is_added = |param: &Entry| param.name.as_deref().is_some_and(|name| ADDED.contains(&name));
        let own = chain.first().map(|entry| self.params_of(entry.place)).unwrap_or_default();
        let origins = chain.iter().skip(1).filter(|entry| !entry.declaration);
        let all = origins.map(|entry| self.params_of(entry.place)).max_by_key(Vec::len).unwrap_or_default();
        let all: Vec<Entry> = all.into_iter().filter(|param| !is_added(param)).collect();
        let params = if own.len() < all.len() || changed && !all.is_empty() { all } else { own };
        let named = params.into_iter().enumerate();
        named.map(|(at, param)| (param.name.unwrap_or_else(|| format!("_{at}")), param.ty)).collect()
    }

    /// Parameters of an entry; attributes that it lacks are taken from the entries that it is a copy of.
    pub(super) fn params_of(&self, place: Place) -> Vec<Entry> {
        let mut params = self.children(place);
        params.retain(|child| child.tag == DW_TAG_formal_parameter);
        for param in params.iter_mut().filter(|param| param.name.is_none() || param.ty.is_none()) {
            let Some(origin) = param.origin else { continue };
            for entry in self.chain(origin) {
                param.name = param.name.take().or(entry.name);
                param.ty = param.ty.or(entry.ty);
            }
        }
        params
    }
}
