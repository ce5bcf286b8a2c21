//! The module that programs are lowered into, and its manifest: maps, data, types and positions, each entered once.

use super::place::StackShare;
use crate::ir::{self, MapDef, MapRef};
use crate::options::Options;
use lang::hir::{self, Program};
use lang::types::passing::float_of;
use lang::{Source, Span};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use wire::Type;
use wire::manifest::{self, Manifest};

/// State that all programs of a module share.
pub(super) struct Cx<'p> {
    pub program: &'p Program,
    pub src: &'p Source,
    pub options: &'p Options,
    pub module: ir::Module,
    pub manifest: Manifest,
    /// Index in the manifest of each `hir::EnumId`.
    pub enums: Vec<u32>,
    /// Map of the module for each `hir::MapId`.
    pub maps: Vec<MapRef>,
    /// Indices of events and counters in the manifest.
    pub events: ByPlace,
    pub counters: ByPlace,
    /// `(offset, length)` of zeroes in the module's data.
    pub zeros: Option<(u32, u32)>,
    /// Name of the scratch map. It is unique: a module's cells may differ in size from those of the session that
    /// it joins.
    pub scratch_map: String,
    /// Bytes of scratch memory that the largest body needs.
    pub scratch_bytes: u32,
    pub share: StackShare,
    /// Callbacks of walks over user stacks, by name, once a body needs them.
    pub walk_callbacks: BTreeMap<&'static str, ir::FuncRef>,
}

pub(super) const BPF_MAP_TYPE_HASH: u32 = 1;
pub(super) const BPF_MAP_TYPE_ARRAY: u32 = 2;
pub(super) const BPF_MAP_TYPE_PERCPU_HASH: u32 = 5;
pub(super) const BPF_MAP_TYPE_PERCPU_ARRAY: u32 = 6;
pub(super) const BPF_MAP_TYPE_STACK_TRACE: u32 = 7;
pub(super) const BPF_MAP_TYPE_LRU_HASH: u32 = 9;
pub(super) const BPF_MAP_TYPE_LRU_PERCPU_HASH: u32 = 10;
pub(super) const BPF_MAP_TYPE_LPM_TRIE: u32 = 11;
pub(super) const BPF_MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;
pub(super) const BPF_MAP_TYPE_RINGBUF: u32 = 27;
pub(super) const BPF_F_NO_PREALLOC: u32 = 1;

/// Default size of the ring buffer in the object; the runtime may change it before loading.
const RING_BYTES: u32 = 1 << 22;
/// Largest number of processes that are traced at once.
const MAX_PIDS: u32 = 1 << 16;

/// `char`
pub(super) const CHAR: hir::Type = hir::Type::Int { bytes: 1, signed: true };

impl<'p> Cx<'p> {
    pub(super) fn new(
        program: &'p Program,
        src: &'p Source,
        options: &'p Options,
        share: StackShare,
    ) -> Cx<'p> {
        let manifest = start_manifest(program, src, options);
        let others = manifest.internal_maps.len();
        let events = by_place(manifest.events.iter().map(|event| event.place));
        let counters = by_place(manifest.counters.iter().map(|counter| counter.place));
        let mut cx = Cx {
            program,
            src,
            options,
            module: ir::Module { private_stack: options.features.private_stack, ..ir::Module::default() },
            manifest,
            events,
            counters,
            enums: vec![],
            maps: vec![],
            zeros: None,
            scratch_map: if others == 0 { "ct_scratch".into() } else { format!("ct_scratch{others}") },
            scratch_bytes: 0,
            share,
            walk_callbacks: BTreeMap::new(),
        };
        for e in &program.enums {
            let id = cx.manifest_enum(e);
            cx.enums.push(id);
        }
        cx
    }

    pub(super) fn manifest_enum(&mut self, e: &hir::Enum) -> u32 {
        let new = manifest::Enum { name: e.name.clone(), variants: e.variants.clone() };
        index_or_push(&mut self.manifest.enums, new)
    }

    /// Adds a finished function to the module.
    pub(super) fn add(&mut self, func: ir::Func) -> ir::FuncRef {
        self.module.funcs.push(func);
        ir::FuncRef(self.module.funcs.len() as u32 - 1)
    }

    /// The map with this name, declared at its first use.
    pub(super) fn internal_map(&mut self, def: MapDef) -> MapRef {
        if let Some(at) = self.module.maps.iter().position(|map| map.name == def.name) {
            return MapRef(at as u32);
        }
        if !self.manifest.internal_maps.contains(&def.name) {
            self.manifest.internal_maps.push(def.name.clone());
        }
        self.module.maps.push(def);
        MapRef(self.module.maps.len() as u32 - 1)
    }

    pub(super) fn ring(&mut self) -> MapRef {
        let bytes = if self.manifest.ring_bytes == 0 { RING_BYTES } else { self.manifest.ring_bytes };
        self.internal_map(MapDef {
            name: manifest::RING_MAP.into(),
            kind: BPF_MAP_TYPE_RINGBUF,
            key_size: 0,
            value_size: 0,
            max_entries: bytes,
            flags: 0,
            direct: false,
        })
    }

    pub(super) fn control(&mut self) -> MapRef {
        self.internal_map(MapDef {
            name: manifest::CONTROL_MAP.into(),
            kind: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: manifest::CONTROL_SIZE,
            max_entries: 1,
            flags: 0,
            direct: true,
        })
    }

    pub(super) fn pids(&mut self) -> MapRef {
        let flags = self.allocating();
        self.internal_map(MapDef {
            name: manifest::PIDS_MAP.into(),
            kind: BPF_MAP_TYPE_HASH,
            key_size: 4,
            value_size: 8,
            max_entries: MAX_PIDS,
            flags,
            direct: false,
        })
    }

    /// Offset of these bytes in the module's data.
    pub(super) fn data(&mut self, bytes: &[u8]) -> u32 {
        let data = &mut self.module.data;
        data.resize(data.len().next_multiple_of(8), 0);
        data.extend_from_slice(bytes);
        (data.len() - bytes.len()) as u32
    }

    /// Offset of at least `bytes` zero bytes.
    pub(super) fn zeros(&mut self, bytes: u32) -> u32 {
        match self.zeros {
            Some((offset, length)) if length >= bytes => offset,
            _ => {
                let offset = self.data(&vec![0; bytes as usize]);
                self.zeros = Some((offset, bytes));
                offset
            }
        }
    }

    /// The manifest's type for a type of a value; other types do not occur.
    pub(super) fn wire_type(&mut self, ty: &hir::Type) -> Type {
        match ty {
            hir::Type::Bool => Type::Bool,
            hir::Type::Int { bytes, signed } => Type::Int { bytes: *bytes, signed: *signed },
            hir::Type::Float(bytes) => Type::Float(*bytes),
            hir::Type::Enum(id) => {
                let at = id.0 as usize;
                Type::Enum { id: self.enums[at], signed: self.program.enums[at].signed }
            }
            hir::Type::Pointer(_) => Type::Pointer,
            hir::Type::Str(capacity) => Type::Str(*capacity),
            hir::Type::Tuple(parts) => Type::Tuple(self.wire_types(&**parts)),
            hir::Type::Name(kind) => Type::Name(*kind),
            hir::Type::Usym => Type::Usym,
            hir::Type::Stack { user, limit, mode } => {
                Type::Stack { map: self.stack_map(*user, *limit), mode: *mode }
            }
            hir::Type::Timestamp(format) => Type::Timestamp(format.clone()),
            hir::Type::Lookup(lookup) => Type::Lookup(*lookup),
            hir::Type::Buf(capacity) => Type::Buf(*capacity),
            hir::Type::Inet => Type::Inet,
            hir::Type::Either(parts) => Type::Either(self.wire_types(&**parts)),
            hir::Type::Record(names, parts) => Type::Record(names.to_vec(), self.wire_types(&**parts)),
            hir::Type::Array(element, count) if **element == CHAR => Type::Chars(*count),
            hir::Type::Array(element, count) => Type::Array(Box::new(self.wire_type(element)), *count),
            hir::Type::Struct(id) => Type::Struct(self.wire_struct(*id)),
            hir::Type::Void => panic!("the checker let a {ty:?} be a value"),
        }
    }

    /// The manifest's description of a struct.
    pub(super) fn wire_struct(&mut self, id: hir::StructId) -> wire::types::Struct {
        let def = &self.program.structs[id.0 as usize];
        let members = def.fields.iter().map(|field| wire::types::Member {
            name: field.name.clone(),
            offset: field.offset,
            ty: if field.float { self.wire_type(&float_of(&field.ty)) } else { self.wire_type(&field.ty) },
            bits: field.bits.map(|bits| (bits.first, bits.count)),
        });
        wire::types::Struct { size: def.size, align: def.align.min(8), members: members.collect() }
    }

    pub(super) fn wire_types<'a>(&mut self, types: impl IntoIterator<Item = &'a hir::Type>) -> Vec<Type> {
        types.into_iter().map(|ty| self.wire_type(ty)).collect()
    }

    /// Size of a value in memory, in bytes.
    pub(super) fn size(&mut self, ty: &hir::Type) -> u32 {
        self.wire_type(ty).size()
    }

    pub(super) fn stack_map(&mut self, user: bool, limit: u32) -> u32 {
        let walked = self.walks(user);
        let kind = if walked { "walk" } else { "stack" };
        let symbol = format!("ct_{}{kind}{limit}", if user { "u" } else { "k" });
        index_or_push(&mut self.manifest.stacks, manifest::StackMap { symbol, user, limit, walked })
    }

    /// Declares all stack maps. A stack may occur only in the key of a map, without a statement that declares its
    /// stack map.
    pub(super) fn all_stack_maps(&mut self) {
        // The modules before may have left those of the other place to this one.
        let is_part = self.options.part.is_some();
        let known = self.options.base.as_ref().filter(|_| !is_part).map_or(0, |base| base.stacks.len());
        let new = self.manifest.stacks[known..].iter();
        let new = new.filter(|stack| self.options.has_stacks(stack.user));
        let new: Vec<_> = new.map(|stack| (stack.user, stack.limit)).collect();
        for (user, limit) in new {
            self.stack_map_ref(user, limit);
        }
    }

    /// Whether programs walk stacks of this kind themselves.
    pub(super) fn walks(&self, user: bool) -> bool {
        user && self.options.unwind.is_some()
    }

    /// Position of the start of a span.
    pub(super) fn place(&mut self, span: Span) -> manifest::Place {
        let (line, column) = self.src.line_column(span.start);
        let file = self.src.file_at(span.start).name.clone();
        let source = manifest::SourceFile { script: self.options.script.clone(), file };
        manifest::Place { source: index_or_push(&mut self.manifest.sources, source), line, column }
    }

    pub(super) fn finish(mut self) -> (ir::Module, Manifest) {
        self.ring();
        self.control();
        self.all_stack_maps();
        if self.options.pid_filter {
            self.pids();
        }
        if self.options.unwind.is_some() && self.options.has_stacks(true) {
            self.unwind_maps();
            self.python_maps();
        }
        self.size_counters();
        self.set_scratch_size();
        (self.module, self.manifest)
    }
}

fn start_manifest(program: &Program, src: &Source, options: &Options) -> Manifest {
    let mut manifest = options.base.clone().unwrap_or_default();
    if manifest.in_process != options.in_process() {
        manifest.in_process = options.in_process();
        std::mem::swap(&mut manifest.internal_maps, &mut manifest.internal_maps_elsewhere);
    }
    manifest.version = manifest::VERSION;
    let source = manifest::SourceFile { script: options.script.clone(), file: src.name.clone() };
    index_or_push(&mut manifest.sources, source);
    for program in std::mem::take(&mut manifest.programs) {
        if !matches!(program.attach, manifest::Attach::Follow { .. }) {
            let manifest::Program { clause, place, text, .. } = program;
            index_or_push(&mut manifest.earlier, manifest::ProbeList { clause, place, text });
        }
    }
    for file in &program.files {
        let file = manifest::File { id: file.id.0, path: file.path.clone() };
        index_or_push(&mut manifest.files, file);
    }
    manifest.names = program.names.clone();
    manifest.metrics = program.maps.iter().map(|map| map.metric.clone()).collect();
    let by_process = (0u32..).zip(&program.maps).filter(|(_, map)| map.by_process);
    manifest.by_process = by_process.map(|(at, _)| at).collect();
    manifest.pid_filter = options.pid_filter;
    let known = options.base.as_ref().map_or(0, |base| base.maps.len());
    manifest.print_maps_on_exit |= program.config.print_maps_on_exit;
    if !program.config.print_maps_on_exit {
        manifest.unprinted.extend(program.maps.iter().skip(known).map(|map| map.name.clone()));
    }
    manifest.mangled |= !program.config.demangle;
    manifest.source_lines |= program.config.source_lines;
    manifest.missing_probes = program.config.missing_probes;
    manifest.cat_bytes = program.config.max_cat_bytes;
    manifest.truncation_trailer = program.config.str_trunc_trailer.clone();
    manifest.ring_bytes = program.config.ring_bytes;
    manifest
}

/// Index of `item` in `list`; appends it if it is new.
pub(super) fn index_or_push<T: PartialEq>(list: &mut Vec<T>, item: T) -> u32 {
    let known = list.iter().position(|old| *old == item);
    known.unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    }) as u32
}

/// Indices of the items of a list, by their position in the script.
pub(super) type ByPlace = FxHashMap<manifest::Place, Vec<u32>>;

fn by_place(places: impl Iterator<Item = manifest::Place>) -> ByPlace {
    let mut known = ByPlace::default();
    places.enumerate().for_each(|(at, place)| known.entry(place).or_default().push(at as u32));
    known
}

/// Like [`index_or_push`], for a list with up to thousands of items at known positions.
pub(super) fn index_at<T: PartialEq>(
    list: &mut Vec<T>,
    known: &mut ByPlace,
    place: manifest::Place,
    item: T,
) -> u32 {
    let here = known.entry(place).or_default();
    let found = here.iter().copied().find(|&at| list[at as usize] == item);
    found.unwrap_or_else(|| {
        here.push(list.len() as u32);
        list.push(item);
        list.len() as u32 - 1
    })
}
