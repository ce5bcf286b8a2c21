//! Records for the reader: written directly into the ring buffer if they have a fixed size, otherwise built in memory and sent
//! with their actual length. Lost records are counted.

use super::body::Body;
use super::module::{Cx, index_at};
use super::place::{Place, is_scalar};
use super::prologue::Pro;
use super::string::STACK_RECORD;
use super::string::Strings;
use crate::bpf::helper::Helper;
use crate::ir::{Cmp, Operand, VReg, Width};
use lang::Span;
use lang::hir::Expr;
use wire::layout::{RECORD_CPU, RECORD_EVENT, RECORD_THREAD, RECORD_TIME, Record};
use wire::manifest::{Event, EventKind, Export, HiddenValue, MacroCall, Message, Piece};
use wire::{CounterKind, Type};

impl Cx<'_> {
    /// Index of the event of this statement.
    fn event(&mut self, kind: EventKind, record: Record, span: Span) -> u32 {
        let place = self.place(span);
        index_at(&mut self.manifest.events, &mut self.events, place, Event { kind, record, place })
    }

    /// The column after a span; 0 if it ends on another line.
    fn end_column(&self, span: Span) -> u32 {
        let [first, last] = [span.start, span.end].map(|at| self.src.line_column(at));
        if first.0 == last.0 { last.1 } else { 0 }
    }
}

/// The description of a record that exporters need.
pub(super) fn exported(
    what: Export,
    name: Option<&[u8]>,
    hidden: &[(HiddenValue, Expr)],
    fields: &[(String, Expr)],
) -> EventKind {
    EventKind::Export {
        what,
        name: name.map(|name| String::from_utf8_lossy(name).into_owned()),
        hidden: hidden.iter().map(|(hidden, _)| *hidden).collect(),
        keys: fields.iter().map(|(key, _)| key.clone()).collect(),
    }
}

impl Body<'_, '_> {
    /// `errorf(format, ...)` and similar functions, with the end column if the statement is on one line.
    pub(super) fn message(&mut self, what: Message, format: &[Piece], calls: &[Span]) -> EventKind {
        let end_column = self.cx.end_column(self.span);
        let call =
            |span: &Span| MacroCall { place: self.cx.place(*span), end_column: self.cx.end_column(*span) };
        EventKind::Message {
            what,
            end_column,
            format: format.to_vec(),
            calls: calls.iter().map(call).collect(),
        }
    }

    /// Sends a record with these values.
    pub(super) fn event(&mut self, kind: EventKind, values: &[&Expr]) {
        let types = self.cx.wire_types(values.iter().map(|value| &value.ty));
        let record = Record::new(types);
        let id = self.cx.event(kind, record.clone(), self.span);
        if record.tail_max == 0 {
            let early = self.early_values(values);
            self.fixed_record(id, &record, values, &early);
        } else {
            self.built_record(id, &record, values);
        }
    }

    /// Sends a record with one number, the value of `expr`, which has been evaluated.
    pub(super) fn number_event(&mut self, kind: EventKind, expr: &Expr, number: VReg) {
        let record = Record::new(vec![self.cx.wire_type(&expr.ty)]);
        let id = self.cx.event(kind, record.clone(), self.span);
        self.fixed_record(id, &record, &[expr], &[Some(number.into())]);
    }

    /// Evaluates values with side effects before the ring buffer is reserved, since the reservation may fail.
    fn early_values(&mut self, values: &[&Expr]) -> Vec<Option<Operand>> {
        let any_effect = values.iter().any(|value| value.changes());
        let early = |body: &mut Self, value: &Expr| {
            (any_effect && is_scalar(&value.ty)).then(|| {
                let value = body.scalar(value);
                body.b().copy(value).into()
            })
        };
        values.iter().map(|value| early(self, value)).collect()
    }

    fn fixed_record(&mut self, id: u32, record: &Record, values: &[&Expr], early: &[Option<Operand>]) {
        let ring = self.cx.ring();
        let ring = self.b().map_addr(ring);
        let size = i64::from(record.head_size);
        let room = self.b().call(Helper::RingbufReserve, &[ring.into(), size.into(), 0.into()]);
        let (full, there) = (self.b().cold_block(), self.b().block());
        let after = self.b().block();
        self.b().branch(Cmp::Eq, room, 0, full, there);
        self.b().switch_to(there);
        let place = Place::behind(room);
        self.header(id, record, place);
        self.head_values(record, values, early, place);
        self.b().call_void(Helper::RingbufSubmit, &[room.into(), 0.into()]);
        self.b().jump(after);
        self.b().switch_to(full);
        self.count(CounterKind::LostEvent(id));
        self.b().fall_into(after);
    }

    fn header(&mut self, id: u32, record: &Record, place: Place) {
        let thread = self.pro(Pro::Thread);
        self.store(place.plus(RECORD_EVENT), Width::B32, i64::from(id));
        self.store(place.plus(RECORD_THREAD), Width::B64, thread);
        let cpu = self.b().call(Helper::GetSmpProcessorId, &[]);
        self.store(place.plus(RECORD_CPU), Width::B32, cpu);
        let now = self.b().call(Helper::KtimeGetBootNs, &[]);
        self.store(place.plus(RECORD_TIME), Width::B64, now);
        for (at, len) in record.padding() {
            self.zero(place.plus(at), len);
        }
    }

    fn head_values(&mut self, record: &Record, values: &[&Expr], early: &[Option<Operand>], place: Place) {
        for ((value, field), early) in values.iter().zip(&record.fields).zip(early) {
            let to = place.plus(field.offset);
            match early {
                _ if matches!(field.ty, Type::Str(_)) => {}
                Some(operand) => self.store_scalar(to, &value.ty, *operand),
                None => self.store_value(value, to),
            }
        }
    }

    fn built_record(&mut self, id: u32, record: &Record, values: &[&Expr]) {
        let early = self.early_values(values);
        let place = self.record_memory(record);
        self.header(id, record, place);
        self.head_values(record, values, &early, place);
        let end = self.b().copy(i64::from(record.head_size));
        for (value, field) in values.iter().zip(&record.fields) {
            if matches!(field.ty, Type::Str(_)) {
                self.at(value.span, |body| body.append_string(value, place, field.offset, end));
            }
        }
        self.output(id, place, end);
    }

    /// Memory for a record with strings. Stack memory is zeroed: verifiers of older kernels require it for memory
    /// that is passed with a variable length.
    fn record_memory(&mut self, record: &Record) -> Place {
        let size = record.max_size();
        let place = if size <= STACK_RECORD { self.temp(size) } else { self.scratch_temp(size) };
        if place.on_stack() {
            self.zero(place.plus(record.head_size), record.tail_max);
        }
        place
    }

    fn output(&mut self, id: u32, place: Place, end: VReg) {
        let ring = self.cx.ring();
        let data = self.pointer(place);
        let ring = self.b().map_addr(ring);
        let args = [ring.into(), data.into(), end.into(), 0.into()];
        let failed = self.b().call(Helper::RingbufOutput, &args);
        self.count_if(Cmp::Ne, failed, 0, CounterKind::LostEvent(id));
    }
}
