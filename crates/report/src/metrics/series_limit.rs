//! Limits the series of a family. The excess is one additional series, whose labels are all [`OTHER`].
//!
//! The largest gauges keep series of their own. A counter with a series of its own keeps it, and a counter that was added to
//! [`OTHER`] stays there, since neither may decrease. A series of ended processes gives way to one of a live process.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Labels, MapHistory, OTHER, Series, Shape, Tally, processes};

impl MapHistory {
    /// At most `limit` series plus one for the others, sorted by labels.
    pub(crate) fn limited(
        &mut self,
        series: Vec<Series>,
        limit: usize,
        shape: &Shape<'_>,
    ) -> Vec<(Labels, Tally)> {
        let order = |one: &Series| (Reverse((one.live, one.tally.magnitude())), one.labels.clone());
        let (rest, mut series): (Vec<_>, Vec<_>) = series.into_iter().partition(|one| is_rest(&one.labels));
        if shape.kind.is_now() {
            series.sort_by_cached_key(order);
            let others = series.split_off(limit.min(series.len()));
            self.seen = series.iter().filter(|one| one.live).map(|one| (one.labels.clone(), true)).collect();
            return together(series, others, shape);
        }
        let (mut own, newer): (Vec<_>, Vec<_>) =
            series.into_iter().partition(|one| self.seen.get(&one.labels) == Some(&true));
        let (mut others, mut newer): (Vec<_>, Vec<_>) =
            newer.into_iter().partition(|one| self.seen.contains_key(&one.labels));
        newer.sort_by_cached_key(order);
        let lives = newer.iter().filter(|one| one.live).count();
        self.make_room(&mut own, lives, limit);
        let room = limit.saturating_sub(own.len()).min(newer.len());
        others.extend(newer.split_off(room));
        own.extend(newer);
        self.seen = own.iter().map(|one| (one.labels.clone(), true)).collect();
        self.seen.extend(others.iter().filter(|one| one.live).map(|one| (one.labels.clone(), false)));
        self.give_up(&others, shape);
        others.extend(rest);
        together(own, others, shape)
    }

    /// Removes series of ended processes, the earliest first, until `lives` more series fit.
    fn make_room(&mut self, own: &mut Vec<Series>, lives: usize, limit: usize) {
        let mut missing = (own.len() + lives).saturating_sub(limit);
        if missing == 0 {
            return;
        }
        own.sort_by_cached_key(|one| (one.live, self.ended.get(&one.labels).map_or(0, |ended| ended.read)));
        own.retain(|one| {
            let goes = !one.live && missing > 0;
            if goes {
                missing -= 1;
                self.ended.remove(&one.labels);
            }
            !goes
        });
    }

    /// Merges the values of ended processes whose series are beyond the limit into one.
    fn give_up(&mut self, others: &[Series], shape: &Shape<'_>) {
        for Series { labels, live, .. } in others {
            if let Some(ended) = (!live).then(|| self.ended.remove(labels)).flatten() {
                let rest = self.ended.entry(rest(labels.clone())).or_default();
                rest.tally.join(ended.tally, shape);
            }
        }
    }
}

fn together(own: Vec<Series>, others: Vec<Series>, shape: &Shape<'_>) -> Vec<(Labels, Tally)> {
    let mut all: BTreeMap<(bool, Labels), Tally> = BTreeMap::new();
    all.extend(own.into_iter().map(|one| ((false, one.labels), one.tally)));
    for Series { labels, tally, .. } in others {
        all.entry((true, rest(labels))).or_default().join(tally, shape);
    }
    all.into_iter().map(|((_, labels), tally)| (labels, tally)).collect()
}

/// The labels of the series for the others.
fn rest(labels: Labels) -> Labels {
    let own = labels.into_iter().filter(|(name, _)| !processes::is_place(name));
    own.map(|(name, _)| (name, OTHER.to_owned())).collect()
}

fn is_rest(labels: &Labels) -> bool {
    !labels.is_empty() && labels.iter().all(|(_, value)| value == OTHER)
}
