//! The conditions of a run: settings of the machine, what other processes took of it, and how steady a fixed loop was.
//! `benches/python/conditions.py` notes the same for Python.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter, Result as Written};
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The word for a setting that the machine does not show: a virtual one seldom shows its governor.
const ABSENT: &str = "none seen";

/// Of the fixed loop: a few milliseconds.
const STEPS: u64 = 4_000_000;

/// For the result file. The percentages are of the time of all processors.
#[derive(Serialize)]
pub struct Conditions {
    huge_pages: String,
    governor: String,
    others_percent: f64,
    stolen_percent: f64,
    calibration_ms: Vec<f64>,
}

impl Display for Conditions {
    fn fmt(&self, to: &mut Formatter) -> Written {
        let Self { huge_pages, governor, others_percent, stolen_percent, calibration_ms } = self;
        let lowest = calibration_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = calibration_ms.iter().copied().fold(0.0, f64::max);
        write!(
            to,
            "transparent huge pages: {huge_pages}, CPU governor: {governor}; other processes used {others_percent:.1} % of \
             the processors, the host took {stolen_percent:.1} %; a fixed loop took {lowest:.2} to {highest:.2} ms"
        )
    }
}

/// Watches a run, from [`Watch::start`] to [`Watch::noted`].
pub struct Watch {
    before: Ticks,
    calibration_ms: Vec<f64>,
}

impl Watch {
    pub fn start() -> Self {
        Self { before: Ticks::read(), calibration_ms: Vec::new() }
    }

    /// Times the fixed loop once. It feels other processes and a changing frequency, and nothing of slow memory.
    pub fn calibrate(&mut self) {
        let started = Instant::now();
        let mut state = 1_u64;
        for _ in 0..STEPS {
            state = black_box(state.rotate_left(7) ^ 0x9E37_79B9);
        }
        self.calibration_ms.push(started.elapsed().as_secs_f64() * 1e3);
    }

    pub fn noted(&self) -> Conditions {
        let after = Ticks::read();
        let between = |of: fn(&Ticks) -> u64| of(&after).saturating_sub(of(&self.before));
        let percent = |part: u64| 100.0 * part as f64 / between(|ticks| ticks.total).max(1) as f64;
        Conditions {
            huge_pages: huge_pages(),
            governor: governor(),
            others_percent: percent(between(|ticks| ticks.busy).saturating_sub(between(|ticks| ticks.own))),
            stolen_percent: percent(between(|ticks| ticks.stolen)),
            calibration_ms: self.calibration_ms.clone(),
        }
    }
}

/// Clock ticks since the boot: of all processors, and of this process with the children that have ended; see proc(5).
struct Ticks {
    total: u64,
    busy: u64,
    stolen: u64,
    own: u64,
}

impl Ticks {
    fn read() -> Self {
        let text = fs::read_to_string("/proc/stat").expect("Linux");
        let [user, nice, system, idle, waiting, irq, soft_irq, stolen] =
            numbers(text.lines().next().unwrap_or_default(), 1);
        let busy = user + nice + system + irq + soft_irq;
        let text = fs::read_to_string("/proc/self/stat").expect("Linux");
        let (_, after_name) = text.rsplit_once(')').expect("the name in brackets");
        let own: [u64; 4] = numbers(after_name, 11);
        Self { total: busy + idle + waiting + stolen, busy, stolen, own: own.iter().sum() }
    }
}

/// So many numbers of the line, after `skip` words.
fn numbers<const COUNT: usize>(line: &str, skip: usize) -> [u64; COUNT] {
    let mut words = line.split_whitespace().skip(skip);
    [(); COUNT].map(|()| words.next().and_then(|word| word.parse().ok()).expect("a number of proc(5)"))
}

/// `always`, `madvise` or `never`: the kernel puts its choice into brackets.
fn huge_pages() -> String {
    let text = fs::read_to_string(HUGE_PAGES).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, after)| after.split_once(']'));
    chosen.map_or(ABSENT, |(chosen, _)| chosen).to_owned()
}

/// The governors of the processors' frequency.
fn governor() -> String {
    let folders = fs::read_dir(PROCESSORS).into_iter().flatten().flatten();
    let files = folders.map(|folder| folder.path().join("cpufreq/scaling_governor"));
    let found: BTreeSet<_> = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    let found: Vec<_> = found.iter().map(|text| text.trim()).collect();
    if found.is_empty() { ABSENT.to_owned() } else { found.join(", ") }
}
