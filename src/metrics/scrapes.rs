//! Scrapers and the series that each has seen. A series that is new to a known scraper is first shown as 0 (`report::metrics::Births`).

use super::requests::MetricsSnapshot;
use report::metrics::{Births, Family};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time after which Prometheus treats a series as stale.
const RECENT: Duration = Duration::from_secs(300);
/// Largest number of clients.
const READERS: usize = 64;

/// A client; clients with one address are distinguished by their `User-Agent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScrapeClient {
    pub address: IpAddr,
    /// Its `User-Agent`.
    pub agent: String,
}

/// The series that each client has seen.
pub struct Scrapes {
    readers: HashMap<ScrapeClient, SeenSeries>,
    begun: Instant,
}

struct SeenSeries {
    births: Births,
    last: Instant,
}

impl Default for Scrapes {
    fn default() -> Scrapes {
        Scrapes { readers: HashMap::new(), begun: Instant::now() }
    }
}

impl Scrapes {
    /// The families as a client sees them. A client that announces periodic scrapes (`scrapes`) sees zeroes from
    /// its first scrape on, if the run began recently. Other clients see them from their second scrape on.
    pub fn shown(&mut self, reader: ScrapeClient, scrapes: bool, reading: &MetricsSnapshot) -> Vec<Family> {
        self.readers.retain(|_, seen| seen.last.elapsed() < RECENT);
        let recent = self.readers.contains_key(&reader) || scrapes && self.begun.elapsed() < RECENT;
        if self.readers.len() >= READERS && !self.readers.contains_key(&reader) {
            let oldest =
                self.readers.iter().min_by_key(|(_, seen)| seen.last).map(|(reader, _)| reader.clone());
            oldest.map(|oldest| self.readers.remove(&oldest));
        }
        let begin = || SeenSeries { births: Births::default(), last: Instant::now() };
        let seen = self.readers.entry(reader).or_insert_with(begin);
        seen.last = Instant::now();
        seen.births.shown(&reading.families, recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::metrics::{Kind, Number, Point, Reading as Value};
    use std::sync::Arc;

    fn reading(errors: &[(&str, u64)]) -> MetricsSnapshot {
        let point = |(result, count): &(&str, u64)| Point {
            labels: vec![("error_type".into(), (*result).into())],
            value: Value::Number(Number::from(*count)),
        };
        let family = Family {
            name: "errors".into(),
            unit: String::new(),
            help: String::new(),
            kind: Kind::Counter,
            points: errors.iter().map(point).collect(),
        };
        MetricsSnapshot { families: Arc::new(vec![family]), ..MetricsSnapshot::default() }
    }

    fn reader(agent: &str) -> ScrapeClient {
        ScrapeClient { address: [127, 0, 0, 1].into(), agent: agent.into() }
    }

    fn values(families: &[Family]) -> Vec<i128> {
        let value = |point: &Point| match &point.value {
            Value::Number(number) => number.whole,
            _ => unreachable!("there are counters alone"),
        };
        families[0].points.iter().map(value).collect()
    }

    #[test]
    fn to_a_reader_that_comes_back_a_new_counter_begins_at_0() {
        let mut scrapes = Scrapes::default();
        let mut read =
            |agent, scrape, errors: &[_]| values(&scrapes.shown(reader(agent), scrape, &reading(errors)));
        assert_eq!(read("curl", false, &[("A", 1)]), [1], "it may read once");
        assert_eq!(read("Prometheus", true, &[("A", 1)]), [0]);
        for agent in ["curl", "Prometheus"] {
            assert_eq!(read(agent, false, &[("A", 2), ("B", 3)]), [2, 0], "{agent}");
            assert_eq!(read(agent, false, &[("A", 2), ("B", 3)]), [2, 3], "{agent}");
        }
    }

    #[test]
    fn readers_make_room_for_others() {
        let mut scrapes = Scrapes::default();
        for number in 0..=READERS {
            scrapes.shown(reader(&number.to_string()), false, &reading(&[]));
        }
        assert_eq!(scrapes.readers.len(), READERS);
        assert!(!scrapes.readers.contains_key(&reader("0")), "the one that was there first");
    }
}
