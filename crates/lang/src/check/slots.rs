//! Type inference for variables and maps: a slot collects the type of every value that is assigned to it and widens.
//!
//! Checking is repeated until no slot changes, so that a read before the first assignment in the text has a type as well. Slots
//! only widen, therefore the repetition ends.

use crate::check::tracked::{Observable, TrackedFact};
use crate::hir::make::literal;
use crate::hir::{Agg, Expr, ExprKind, Lookup, Map, MapValue, Metric, NameKind, Type};
use crate::source::span::Span;
use crate::types::{Types, int_holds, places_of};
use std::sync::Arc;

/// The type of a variable, a map's value or a part of a map's key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slot {
    /// Join of the types of all values but literals.
    typed: Option<Type>,
    /// Smallest and largest literal; literals take the type of the other values if it holds them.
    literals: Option<(i64, i64)>,
    /// Updated in place: 64 bits.
    wide: bool,
    /// Declared, or of a running program: does not widen.
    fixed: bool,
    /// The parts of a tuple or record that may widen, each with its literals.
    parts: Option<PartSlots>,
    /// Whether some value is a register of unknown type, and whether some value is neither that nor a literal.
    registers: (bool, bool),
}

/// The parts of a tuple or record.
#[derive(Clone, Debug, PartialEq)]
struct PartSlots {
    /// The names of a record's members.
    names: Option<Arc<[String]>>,
    slots: Vec<Slot>,
}

impl PartSlots {
    /// Slots for the parts of a type; `None` for other types.
    fn of(ty: &Type) -> Option<PartSlots> {
        let (names, count) = match ty {
            Type::Tuple(parts) => (None, parts.len()),
            Type::Record(names, parts) => (Some(names.clone()), parts.len()),
            _ => return None,
        };
        Some(PartSlots { names, slots: vec![Slot::default(); count] })
    }

    /// The type; `None` while that of a part is unknown.
    fn ty(&self, types: &Types) -> Option<Type> {
        let parts = self.slots.iter().map(|slot| slot.ty(types)).collect::<Option<_>>()?;
        Some(match &self.names {
            Some(names) => Type::Record(names.clone(), parts),
            None => Type::Tuple(parts),
        })
    }

    /// For each part, its place in a value of the given type.
    fn places(&self, ty: &Type) -> Option<Vec<usize>> {
        let none = vec![Type::Void; self.slots.len()].into();
        let own = match &self.names {
            Some(names) => Type::Record(names.clone(), none),
            None => Type::Tuple(none),
        };
        places_of(&own, ty)
    }

    /// Takes the parts of a value; false if they do not fit.
    fn take(&mut self, value: &Expr, types: &Types) -> bool {
        let Some(places) = self.places(&value.ty) else { return false };
        match (&value.kind, &value.ty) {
            (ExprKind::Tuple(parts), _) => {
                self.slots.iter_mut().zip(places).all(|(slot, at)| slot.take(&parts[at], types).is_ok())
            }
            (_, Type::Tuple(parts) | Type::Record(_, parts)) => {
                self.slots.iter_mut().zip(places).all(|(slot, at)| slot.take_type(&parts[at], types).is_ok())
            }
            _ => false,
        }
    }

    /// Takes the types of parts; false if they do not fit.
    fn take_type(&mut self, ty: &Type, types: &Types) -> bool {
        let (Some(places), Type::Tuple(parts) | Type::Record(_, parts)) = (self.places(ty), ty) else {
            return false;
        };
        self.slots.iter_mut().zip(places).all(|(slot, at)| slot.take_type(&parts[at], types).is_ok())
    }
}

impl Observable for Slot {
    fn is_equivalent(&self, other: &Slot, types: &Types) -> bool {
        self.ty(types) == other.ty(types) && self.is_register() == other.is_register()
    }
}

/// A value that a slot cannot take.
#[derive(Debug, PartialEq)]
pub struct Mismatch {
    /// The type of the slot.
    pub has: Type,
}

impl Slot {
    /// A slot that does not widen.
    pub fn fixed(ty: Type) -> Slot {
        Slot { typed: Some(ty), fixed: true, ..Slot::default() }
    }

    /// A slot of a map that only holds what is read from it, or from others like it.
    pub fn integers() -> Slot {
        Slot { literals: Some((0, 0)), ..Slot::default() }
    }

    /// Declared, or of a running program.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Records whether an assigned value is a register of unknown type.
    pub fn note_register(&mut self, value: &Expr, register: bool) {
        let (some, others) = self.registers;
        self.registers = (some || register, others || !register && literal(value).is_none());
    }

    /// All values are registers of unknown type, or literals.
    pub fn is_register(&self) -> bool {
        self.registers == (true, false) && !self.wide && !self.fixed
    }

    /// Takes a value whose users convert `func` to a symbol in the next round, if other values are symbols of `ksym`.
    pub fn take_or_symbol(&mut self, value: &Expr, types: &Types) -> Result<(), Mismatch> {
        let symbol = Type::Lookup(Lookup::Ksym);
        if !self.fixed && self.typed == Some(Type::Name(NameKind::Func)) && value.ty == symbol {
            self.typed = Some(symbol);
        }
        self.take(value, types)
    }

    /// Takes a value: widens, or returns the type that does not fit.
    pub fn take(&mut self, value: &Expr, types: &Types) -> Result<(), Mismatch> {
        if value.ty == Type::Void {
            return Ok(());
        }
        if let Some(wider) = self.wider_address(value, types) {
            self.typed = Some(wider);
            return Ok(());
        }
        match literal(value) {
            Some(number) if self.takes_literals() => self.take_literal(number),
            _ => self.in_parts(&value.ty, types, |parts| parts.take(value, types)),
        }
    }

    /// The type of an address of a variable, which may have become wider since the slot took the address in an earlier round.
    fn wider_address(&self, value: &Expr, types: &Types) -> Option<Type> {
        let (false, ExprKind::VarAddress(_)) = (self.fixed, &value.kind) else { return None };
        let (Some(Type::Pointer(has)), Type::Pointer(to)) = (&self.typed, &value.ty) else { return None };
        Some(Type::Pointer(Arc::new(types.join(has, to)?)))
    }

    /// Passes the slots of the parts to `take` if the slot is one of tuples or records, or is empty and becomes one.
    fn in_parts(
        &mut self,
        ty: &Type,
        types: &Types,
        take: impl FnOnce(&mut PartSlots) -> bool,
    ) -> Result<(), Mismatch> {
        let is_empty = self.typed.is_none() && self.literals.is_none() && !self.wide && !self.fixed;
        if self.parts.is_none() && is_empty {
            self.parts = PartSlots::of(ty);
        }
        let has = self.ty(types);
        let Some(parts) = &mut self.parts else { return self.join_type(ty, types) };
        if take(parts) { Ok(()) } else { Err(Mismatch { has: has.unwrap_or(Type::Void) }) }
    }

    fn takes_literals(&self) -> bool {
        self.parts.is_none()
            && matches!(
                self.typed,
                None | Some(Type::Int { .. } | Type::Enum(_) | Type::Pointer(_) | Type::Bool)
            )
    }

    fn take_literal(&mut self, number: i64) -> Result<(), Mismatch> {
        if let (true, Some(ty)) = (self.fixed, &self.typed) {
            let fits = !matches!(ty, Type::Int { .. }) || int_holds(ty, number);
            return if fits { Ok(()) } else { Err(Mismatch { has: ty.clone() }) };
        }
        let (low, high) = self.literals.unwrap_or((number, number));
        self.literals = Some((low.min(number), high.max(number)));
        Ok(())
    }

    fn take_type(&mut self, ty: &Type, types: &Types) -> Result<(), Mismatch> {
        self.in_parts(ty, types, |parts| parts.take_type(ty, types))
    }

    fn join_type(&mut self, ty: &Type, types: &Types) -> Result<(), Mismatch> {
        let Some(has) = &self.typed else {
            let only_ints = self.literals.is_some() || self.wide;
            if only_ints && !matches!(ty, Type::Int { .. } | Type::Enum(_) | Type::Pointer(_) | Type::Bool) {
                return Err(Mismatch { has: self.ty(types).unwrap_or(Type::I64) });
            }
            self.typed = Some(ty.clone());
            return Ok(());
        };
        match types.join(has, ty) {
            Some(joined) if self.fixed => {
                // A fixed integer takes others of its width: the sign only affects printing.
                let narrower =
                    matches!((has, ty), (Type::Int { bytes: a, .. }, Type::Int { bytes: b, .. }) if b <= a);
                if joined == *has || narrower { Ok(()) } else { Err(Mismatch { has: has.clone() }) }
            }
            Some(joined) => {
                self.typed = Some(joined);
                Ok(())
            }
            None => Err(Mismatch { has: has.clone() }),
        }
    }

    /// Takes a value of an update in place: the slot becomes a 64-bit integer.
    pub fn update(&mut self, value: &Expr, types: &Types) -> Result<(), Mismatch> {
        if !self.fixed {
            self.wide = true;
        }
        if let Some(has) = self.typed.as_ref().filter(|ty| !is_number(ty)) {
            return Err(Mismatch { has: has.clone() });
        }
        if let Some(parts) = &self.parts {
            return Err(Mismatch { has: parts.ty(types).unwrap_or(Type::Void) });
        }
        self.take(value, types)
    }

    /// The current type; `None` while unknown.
    pub fn ty(&self, types: &Types) -> Option<Type> {
        if let Some(parts) = &self.parts {
            return parts.ty(types);
        }
        let ty = match &self.typed {
            None if self.literals.is_none() && !self.wide => return None,
            None => Type::I64,
            Some(Type::Enum(id)) if self.wide || self.beyond_enums() => types.enum_int(*id),
            Some(Type::Bool) if self.literals.is_some() || self.wide => Type::I64,
            Some(ty) => ty.clone(),
        };
        if self.fixed {
            return Some(ty);
        }
        Some(match ty {
            Type::Int { bytes, signed } => self.widened(if self.wide { 8 } else { bytes }, signed),
            other => other,
        })
    }

    /// Some literal does not fit an enum, which has 4 bytes.
    fn beyond_enums(&self) -> bool {
        let (low, high) = self.literals.unwrap_or((0, 0));
        low < i64::from(i32::MIN) || high > i64::from(u32::MAX)
    }

    /// The smallest type of at least `bytes` bytes that also holds the literals.
    fn widened(&self, bytes: u8, signed: bool) -> Type {
        let (low, high) = self.literals.unwrap_or((0, 0));
        let holds = |ty: &Type| int_holds(ty, low) && int_holds(ty, high);
        let wider = [1, 2, 4, 8].into_iter().filter(|&b| b >= bytes).map(|bytes| Type::Int { bytes, signed });
        wider.into_iter().find(holds).unwrap_or(Type::I64)
    }
}

fn is_number(ty: &Type) -> bool {
    matches!(ty, Type::Int { .. } | Type::Bool | Type::Enum(_))
}

/// Inferred facts of a map.
#[derive(Clone, Debug)]
pub struct MapState {
    /// Without the sigil.
    pub name: String,
    /// Parts of the key; `None` until the first use.
    pub key: TrackedFact<Option<Vec<Slot>>>,
    /// The type of its values.
    pub value: TrackedFact<ValueState>,
    /// Maximum number of keys.
    pub max_entries: Option<u32>,
    /// New keys replace old ones.
    pub evicts: bool,
    /// Keys are deleted when their process exits.
    pub by_process: bool,
    /// Export as a metric.
    pub metric: Metric,
    /// First use.
    pub span: Span,
    /// A statement assigns a plain value to it, whose type may be unknown.
    pub is_assigned: bool,
    /// Some checked code uses it.
    pub is_mentioned: bool,
}

/// Inferred type of a map's values.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueState {
    /// A plain value, or unknown.
    Plain(Slot),
    /// An aggregation.
    Agg(Agg),
}

/// The parts of a map's key.
impl Observable for Option<Vec<Slot>> {
    fn is_equivalent(&self, other: &Self, types: &Types) -> bool {
        match (self, other) {
            (Some(a), Some(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_equivalent(b, types))
            }
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Observable for ValueState {
    fn is_equivalent(&self, other: &Self, types: &Types) -> bool {
        match (self, other) {
            (ValueState::Plain(a), ValueState::Plain(b)) => a.is_equivalent(b, types),
            (a, b) => a == b,
        }
    }
}

impl MapState {
    /// A map at its first use.
    pub fn new(name: &str, span: Span) -> MapState {
        let (key, value) = (TrackedFact::default(), TrackedFact::new(ValueState::Plain(Slot::default())));
        let metric = Metric::default();
        let (evicts, by_process) = (false, false);
        let (is_assigned, is_mentioned) = (false, false);
        let (name, max_entries) = (name.into(), None);
        MapState {
            name,
            key,
            value,
            max_entries,
            evicts,
            by_process,
            metric,
            span,
            is_assigned,
            is_mentioned,
        }
    }

    /// A map of a running program.
    pub fn of_session(map: &Map) -> MapState {
        let value = match &map.value {
            MapValue::Plain(ty) => ValueState::Plain(Slot::fixed(ty.clone())),
            MapValue::Agg(agg) => ValueState::Agg(agg.clone()),
        };
        MapState {
            name: map.name.clone(),
            key: TrackedFact::new(Some(map.key.iter().cloned().map(Slot::fixed).collect())),
            value: TrackedFact::new(value),
            max_entries: Some(map.max_entries),
            evicts: map.evicts,
            by_process: map.by_process,
            metric: map.metric.clone(),
            span: map.span,
            is_assigned: false,
            is_mentioned: false,
        }
    }

    /// Types of the key's parts, once all are known.
    pub fn key_types(&self, types: &Types) -> Option<Vec<Type>> {
        self.key.get().as_ref()?.iter().map(|slot| slot.ty(types)).collect()
    }

    /// Whether the type of its values is known.
    pub fn is_known(&self, types: &Types) -> bool {
        matches!(self.value.get(), ValueState::Agg(_)) || self.read_type(types).is_some()
    }

    /// The type that reading a cell gives; `None` while unknown, and for histograms.
    pub fn read_type(&self, types: &Types) -> Option<Type> {
        match self.value.get() {
            ValueState::Plain(slot) => slot.ty(types),
            ValueState::Agg(agg) => agg_type(agg),
        }
    }
}

/// The type that reading a cell of an aggregation gives.
pub fn agg_type(agg: &Agg) -> Option<Type> {
    match agg {
        Agg::Count => Some(Type::I64),
        Agg::Sum { signed } | Agg::Min { signed } | Agg::Max { signed } | Agg::Avg { signed } => {
            Some(Type::Int { bytes: 8, signed: *signed })
        }
        Agg::Stats { .. } | Agg::Hist { .. } | Agg::LHist { .. } | Agg::TSeries { .. } => None,
    }
}

/// Name of the aggregation's function.
pub fn agg_name(agg: &Agg) -> &'static str {
    match agg {
        Agg::Count => "count",
        Agg::Sum { .. } => "sum",
        Agg::Min { .. } => "min",
        Agg::Max { .. } => "max",
        Agg::Avg { .. } => "avg",
        Agg::Stats { .. } => "stats",
        Agg::Hist { .. } => "hist",
        Agg::LHist { .. } => "lhist",
        Agg::TSeries { .. } => "tseries",
    }
}

/// Two uses of one aggregation: signed if either is. `None` when they are different functions.
pub fn join_aggs(a: &Agg, b: &Agg) -> Option<Agg> {
    use Agg::*;
    Some(match (a, b) {
        (Sum { signed: x }, Sum { signed: y }) => Sum { signed: x | y },
        (Min { signed: x }, Min { signed: y }) => Min { signed: x | y },
        (Max { signed: x }, Max { signed: y }) => Max { signed: x | y },
        (Avg { signed: x }, Avg { signed: y }) => Avg { signed: x | y },
        (Stats { signed: x }, Stats { signed: y }) => Stats { signed: x | y },
        (TSeries { signed: x, .. }, TSeries { interval, count, keeps, signed: y }) if matches!(a, TSeries { interval: i, count: c, keeps: k, .. } if (i, c, k) == (interval, count, keeps)) => {
            TSeries { interval: *interval, count: *count, keeps: *keeps, signed: x | y }
        }
        (a, b) if a == b => a.clone(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hir::Builtin;

    fn expr(kind: ExprKind, ty: Type) -> Expr {
        Expr { kind, ty, span: Span::default() }
    }

    fn number(value: i64) -> Expr {
        expr(ExprKind::Int(value), Type::I64)
    }

    #[test]
    fn literals_adapt() {
        let types = Types::default();
        let mut slot = Slot::default();
        slot.take(&number(0), &types).unwrap();
        assert_eq!(slot.ty(&types), Some(Type::I64));
        slot.take(&expr(ExprKind::Builtin(Builtin::Pid, vec![]), Type::U32), &types).unwrap();
        assert_eq!(slot.ty(&types), Some(Type::U32));
        slot.take(&number(1 << 40), &types).unwrap();
        assert_eq!(slot.ty(&types), Some(Type::U64));
        slot.take(&number(-1), &types).unwrap();
        assert_eq!(slot.ty(&types), Some(Type::I64));
    }

    #[test]
    fn literals_in_tuples_adapt() {
        let types = Types::default();
        let tuple = |part: Expr| {
            let ty = Type::Tuple([part.ty.clone()].into());
            expr(ExprKind::Tuple(vec![part]), ty)
        };
        let of = |part: Type| Some(Type::Tuple([part].into()));
        let pid = || expr(ExprKind::Builtin(Builtin::Pid, vec![]), Type::U32);
        let mut slot = Slot::default();
        slot.take(&tuple(number(1)), &types).unwrap();
        assert_eq!(slot.ty(&types), of(Type::I64));
        slot.take(&tuple(pid()), &types).unwrap();
        assert_eq!(slot.ty(&types), of(Type::U32));
        slot.take(&tuple(number(-1)), &types).unwrap();
        assert_eq!(slot.ty(&types), of(Type::I64));
        assert!(slot.take(&pid(), &types).is_err() && slot.take(&number(1), &types).is_err());
    }

    #[test]
    fn counters_are_unsigned_only_if_all_is() {
        let types = Types::default();
        let mut slot = Slot::default();
        slot.update(&number(1), &types).unwrap();
        assert_eq!(slot.ty(&types), Some(Type::I64));
        slot.update(&expr(ExprKind::Builtin(Builtin::Pid, vec![]), Type::U32), &types).unwrap();
        assert_eq!(slot.ty(&types), Some(Type::U64));
        slot.update(&number(-1), &types).unwrap();
        assert_eq!(slot.ty(&types), Some(Type::I64));
    }

    #[test]
    fn other_changes_are_refused() {
        let types = Types::default();
        let mut slot = Slot::default();
        slot.take(&number(1), &types).unwrap();
        let text = expr(ExprKind::Str(b"a".to_vec()), Type::Str(2));
        assert_eq!(slot.take(&text, &types), Err(Mismatch { has: Type::I64 }));
        let mut fixed = Slot::fixed(Type::U32);
        assert!(fixed.take(&number(-1), &types).is_err());
        assert!(fixed.take(&expr(ExprKind::Builtin(Builtin::Nsecs, vec![]), Type::U64), &types).is_err());
        assert!(fixed.take(&number(7), &types).is_ok());
    }
}
