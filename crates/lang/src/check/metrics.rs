//! Maps as metrics: the options of `metric @m = { ... }`. Labels that it does not name get the names of `expand::key_labels`.

use crate::check::Checker;
use crate::check::slots::{MapState, ValueState};
use crate::hir::{Agg, Metric, MetricKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::ast::{ConfigEntry, ExprKind, Name};

/// A declaration, compared with its map after the last round.
pub(super) struct MetricDeclaration {
    map: Name,
    metric: Metric,
    labels: Option<(Vec<String>, Span)>,
    kind: Option<Span>,
}

/// Sets a property; `Err` describes the expected value.
type Set = fn(&mut MetricDeclaration, &ast::Expr) -> Result<(), &'static str>;

static PROPERTIES: &[(&str, Set)] = &[
    ("name", |d, e| text(e).map(|text| d.metric.name = text)),
    ("unit", |d, e| text(e).map(|text| d.metric.unit = text)),
    ("help", |d, e| text(e).map(|text| d.metric.help = text)),
    ("labels", |d, e| text(e).map(|text| d.labels = Some((names(&text), e.span)))),
    ("kind", |d, e| {
        d.kind = Some(e.span);
        d.metric.kind = Some(match &e.kind {
            ExprKind::Ident(word) if word == "counter" => MetricKind::Counter,
            ExprKind::Ident(word) if word == "gauge" => MetricKind::Gauge,
            ExprKind::Ident(word) if word == "updowncounter" => MetricKind::UpDownCounter,
            _ => return Err("`counter`, `updowncounter` or `gauge`"),
        });
        Ok(())
    }),
    ("divisor", |d, e| match e.kind {
        ExprKind::Int { value: value @ 1.., .. } => {
            d.metric.divisor = value;
            Ok(())
        }
        _ => Err("a number of at least 1"),
    }),
];

fn text(e: &ast::Expr) -> Result<String, &'static str> {
    let ExprKind::Str(bytes) = &e.kind else { return Err("a string") };
    String::from_utf8(bytes.clone()).map_err(|_| "a string in UTF-8")
}

fn names(text: &str) -> Vec<String> {
    text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

impl Checker<'_> {
    /// `metric @m = { ... }`
    pub(crate) fn declare_metric(&mut self, map: &Name, entries: &[ConfigEntry]) {
        let metric = Metric { declared: true, ..Metric::default() };
        let mut declared = MetricDeclaration { map: map.clone(), metric, labels: None, kind: None };
        for entry in entries {
            self.property(&mut declared, entry);
        }
        match self.metric_names.0.get(&map.node).copied() {
            Some(first) => {
                self.error("E0242", map.span, format!("`@{}` is declared as a metric twice", map.node))
                    .help("remove one of the two declarations")
                    .also
                    .push(first);
            }
            None => drop(self.metric_names.0.insert(map.node.clone(), map.span)),
        }
        let name = &declared.metric.name;
        let named = Some(name.clone()).filter(|name| !name.is_empty());
        match named.as_ref().and_then(|name| self.metric_names.1.get(name).copied()) {
            Some(first) => {
                let message = format!("two metrics have the name `{name}`");
                self.error("E0242", map.span, message)
                    .help("give one of them another `name`")
                    .also
                    .push(first);
            }
            None => self.metric_names.1.extend(named.map(|name| (name, map.span))),
        }
        self.metrics.push(declared);
    }

    fn property(&mut self, declared: &mut MetricDeclaration, entry: &ConfigEntry) {
        let (key, span) = (entry.key.node.as_str(), entry.key.span);
        let Some((_, set)) = PROPERTIES.iter().find(|(name, _)| *name == key) else {
            let known = PROPERTIES.iter().map(|(name, _)| *name);
            let help = self.diags.similar(key, known.clone()).first().map_or_else(
                || {
                    format!(
                        "properties are {}",
                        known.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
                    )
                },
                |near| format!("did you mean `{near}`?"),
            );
            self.error("E0242", span, format!("a metric has no `{key}`")).help(help);
            return;
        };
        if let Err(takes) = set(declared, &entry.value) {
            self.error("E0242", entry.value.span, format!("`{key}` takes {takes}"));
        }
    }

    /// Checks declarations against the maps after the last round.
    pub(crate) fn check_metrics(&mut self) {
        for map in self.maps.iter_mut().filter(|map| map.metric.labels.is_empty()) {
            map.metric.labels = self.labels.get(&map.name).cloned().unwrap_or_default();
        }
        for declared in std::mem::take(&mut self.metrics) {
            let Some(at) = self.map_ids.get(&declared.map.node).map(|id| id.0 as usize) else {
                // The assignment to it may be the error.
                if self.diags.has_errors() {
                    continue;
                }
                let message = format!("map `@{}` is never assigned", declared.map.node);
                self.error("E0242", declared.map.span, message);
                continue;
            };
            self.check_metric(at, declared);
        }
    }

    fn check_metric(&mut self, at: usize, declared: MetricDeclaration) {
        let MetricDeclaration { map, mut metric, labels, kind } = declared;
        let state = &self.maps[at];
        metric.labels = state.metric.labels.clone();
        let parts = state.key.get().as_ref().map_or(0, Vec::len);
        let (aggregated, numeric) = (matches!(state.value.get(), ValueState::Agg(_)), self.is_numeric(state));
        if !aggregated && !numeric {
            let message = format!("`@{}` holds no numbers", map.node);
            self.error("E0242", map.span, message).help("put text and other values into the key");
            return;
        }
        if let Some((names, span)) = labels {
            if names.len() != parts {
                let message = format!(
                    "`@{}` has a key of {parts} part{}, found {} label{}",
                    map.node,
                    if parts == 1 { "" } else { "s" },
                    names.len(),
                    if names.len() == 1 { "" } else { "s" },
                );
                self.error("E0242", span, message);
                return;
            }
            metric.labels = names;
        }
        if let Some(span) = kind.filter(|_| !self.has_kind(at)) {
            let message = format!("the kind of `@{}` follows from its aggregation", map.node);
            self.error("E0242", span, message).help("`kind` is for plain values, `count` and `sum`");
        }
        self.maps[at].metric = metric;
    }

    fn is_numeric(&self, state: &MapState) -> bool {
        let ty = state.read_type(&self.types);
        matches!(ty, Some(Type::Int { .. } | Type::Bool | Type::Enum(_)))
    }

    fn has_kind(&self, at: usize) -> bool {
        matches!(
            self.maps[at].value.get(),
            ValueState::Plain(_) | ValueState::Agg(Agg::Count | Agg::Sum { .. })
        )
    }
}
