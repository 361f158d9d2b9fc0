//! Places values on an axis, and chooses which are labelled.

use super::Axis;

/// Scale from values to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub lo: f64,
    pub hi: f64,
    pub log: bool,
    /// Pixel of `lo`.
    pub from: f64,
    /// Pixel of `hi`.
    pub to: f64,
}

/// Rule by which the bounds follow from the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    /// The data with a margin, and zero if it is not far.
    Loose,
    /// The data alone, as of time.
    Tight,
    /// Bounds that include zero.
    Zero,
}

/// A marked value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub value: f64,
    /// None of a line in between.
    pub label: Option<String>,
}

/// True if an axis can show it. Numbers that leave no space for a margin around them are no
/// measurements.
pub(super) fn shown(log: bool, value: f64) -> bool {
    value.abs() <= 1e300 && (!log || value >= 1e-300)
}

impl Scale {
    /// A scale of `values`; none if there is nothing that it can show. A range that is empty or cannot
    /// be shown is ignored.
    pub(super) fn new(
        axis: &Axis,
        bounds: Bounds,
        values: impl Iterator<Item = f64>,
    ) -> Option<Self> {
        let log = axis.log;
        let values = values.filter(|v| shown(log, *v));
        let data = values.fold(None, |range: Option<(f64, f64)>, v| {
            Some(range.map_or((v, v), |(lo, hi)| (lo.min(v), hi.max(v))))
        })?;
        let given = axis
            .range
            .filter(|(lo, hi)| shown(log, *lo) && shown(log, *hi) && lo < hi);
        let (lo, hi) = given.unwrap_or_else(|| widened(data, log, bounds));
        Some(Self {
            lo,
            hi,
            log,
            from: 0.0,
            to: 1.0,
        })
    }

    pub(super) fn over(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    fn part(&self, value: f64) -> f64 {
        if self.log {
            (value.ln() - self.lo.ln()) / (self.hi.ln() - self.lo.ln())
        } else {
            (value - self.lo) / (self.hi - self.lo)
        }
    }

    /// The pixel of `value`, which may lie outside.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let far = 1e6;
        shown(self.log, value).then(|| {
            let part = self.part(value).clamp(-far, far);
            self.from + part * (self.to - self.from)
        })
    }

    /// Position of `value`, with values outside at the border.
    pub(super) fn clamped(&self, value: f64) -> f64 {
        let inside = value.clamp(self.lo, self.hi);
        self.at(inside).unwrap_or(self.from)
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        let slack = 1e-9;
        shown(self.log, value) && (-slack..=1.0 + slack).contains(&self.part(value))
    }

    /// About `most` labelled ticks.
    pub(super) fn ticks(&self, most: usize) -> Vec<Tick> {
        let most = most.max(2);
        if !self.log {
            return self.linear(most);
        }
        let decades = (self.hi / self.lo).log10();
        if decades < 0.7 {
            return self.linear(most);
        }
        let first = whole(self.lo.log10().floor());
        let last = whole(self.hi.log10().floor());
        let powers = (first..=last).filter(|e| self.holds(10f64.powi(*e)));
        let count = powers.count();
        let every = i32::try_from(count.div_ceil(most)).unwrap_or(1).max(1);
        // 1, 2, 5 of every decade where there is space for them.
        let steps: &[i32] = if decades * 3.0 <= to_f64(most) {
            &[1, 2, 5]
        } else {
            &[1]
        };
        let mut ticks = Vec::new();
        for exponent in first..=last {
            for digit in 1..10 {
                let value = f64::from(digit) * 10f64.powi(exponent);
                let labelled = exponent.rem_euclid(every) == 0 && steps.contains(&digit);
                if self.holds(value) && (labelled || count <= 8 || digit == 1) {
                    let label = labelled.then(|| number(value));
                    ticks.push(Tick { value, label });
                }
            }
        }
        if ticks.iter().filter(|t| t.label.is_some()).count() < 2 {
            return self.linear(most);
        }
        ticks
    }

    fn linear(&self, most: usize) -> Vec<Tick> {
        let step = nice((self.hi - self.lo) / to_f64(most));
        let first = (self.lo / step - 1e-9).ceil();
        let values: Vec<f64> = (0..=most)
            .map(|i| (first + to_f64(i)) * step)
            .map(|v| if v.abs() < step / 2.0 { 0.0 } else { v })
            .filter(|v| self.holds(*v))
            .collect();
        let labels = labels(&values, step);
        let both = values.into_iter().zip(labels);
        both.map(|(value, label)| Tick {
            value,
            label: Some(label),
        })
        .collect()
    }
}

fn widened((lo, hi): (f64, f64), log: bool, bounds: Bounds) -> (f64, f64) {
    if log {
        if lo >= hi {
            return (lo / 2.0, hi * 2.0);
        }
        let margin = (hi / lo).powf(0.04).max(1.05);
        return if bounds == Bounds::Tight {
            (lo, hi)
        } else {
            (lo / margin, hi * margin)
        };
    }
    let (mut lo, mut hi) = (lo, hi);
    let near = (lo > 0.0 && lo <= hi / 2.0) || (hi < 0.0 && hi >= lo / 2.0);
    if bounds == Bounds::Zero || near || lo >= hi {
        (lo, hi) = (lo.min(0.0), hi.max(0.0));
    }
    if lo >= hi {
        return (0.0, 1.0);
    }
    if bounds == Bounds::Tight {
        return (lo, hi);
    }
    let margin = (hi - lo) / 20.0;
    let below = if lo == 0.0 { lo } else { lo - margin };
    let above = if hi == 0.0 { hi } else { hi + margin };
    (below, above)
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn nice(step: f64) -> f64 {
    let step = step.max(f64::MIN_POSITIVE * 1e3);
    let power = 10f64.powf(step.log10().floor());
    let digits = step / power;
    let nice = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|n| digits <= n * (1.0 + 1e-9));
    nice.unwrap_or(10.0) * power
}

const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];

/// Labels with as many decimals as `step` needs, and one unit.
fn labels(values: &[f64], step: f64) -> Vec<String> {
    let most = values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    if !(1e-4..1e16).contains(&most) {
        return values.iter().map(|v| number(*v)).collect();
    }
    let (unit, suffix) = unit(most / 10.0);
    let decimals = usize::try_from(whole(-(step / unit * 1.001).log10().floor())).unwrap_or(0);
    let label = |v: &f64| match *v {
        0.0 => "0".to_owned(),
        v => format!("{}{suffix}", signed(&format!("{:.decimals$}", v / unit))),
    };
    values.iter().map(label).collect()
}

fn unit(size: f64) -> (f64, &'static str) {
    let found = UNITS.into_iter().find(|(unit, _)| size >= *unit * 0.999);
    found.unwrap_or((1.0, ""))
}

/// Three digits, as in 0.05, 12.3, 25k or 10⁻⁵.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    let size = value.abs();
    if !(0.9995e-4..1e16).contains(&size) {
        let exponent = whole(size.log10().floor());
        let digits = (size / 10f64.powi(exponent)).clamp(1.0, 9.99);
        let digits = trimmed(&format!("{digits:.2}"));
        let power = format!("10{}", superscript(exponent));
        let text = if digits == "1" {
            power
        } else {
            format!("{digits}·{power}")
        };
        return if value < 0.0 {
            format!("−{text}")
        } else {
            text
        };
    }
    // 1234 is better than 1.23k, which hides what is known.
    let (unit, suffix) = if size < 9_999.5 {
        (1.0, "")
    } else {
        unit(size)
    };
    let scaled = value / unit;
    let before = whole(scaled.abs().log10().floor()) + 1;
    let decimals = usize::try_from(3 - before).unwrap_or(0);
    format!(
        "{}{suffix}",
        signed(&trimmed(&format!("{scaled:.decimals$}")))
    )
}

fn trimmed(text: &str) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text.to_owned()
    }
}

fn signed(text: &str) -> String {
    text.replace('-', "−")
}

fn superscript(exponent: i32) -> String {
    let digits = exponent.to_string();
    let raised = digits.chars().map(|c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => c
            .to_digit(10)
            .and_then(|d| char::from_u32(0x2070 + d))
            .unwrap_or(c),
    });
    raised.collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "exponents of floating-point numbers"
)]
fn whole(x: f64) -> i32 {
    x as i32
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of ticks, groups and cells"
)]
pub(super) fn to_f64(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(axis: &Axis, values: &[f64], most: usize) -> Vec<String> {
        let scale = Scale::new(axis, Bounds::Loose, values.iter().copied()).unwrap();
        let ticks = scale.ticks(most);
        ticks.into_iter().filter_map(|t| t.label).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_share_a_unit() {
        let axis = Axis::default();
        let of = |values: &[f64]| labelled(&axis, values, 5);
        assert_eq!(of(&[0.0, 100.0]), ["0", "50", "100"]);
        assert_eq!(of(&[0.0, 1.0]), ["0", "0.5", "1.0"]);
        assert_eq!(of(&[50.0, 61.0]), ["50", "55", "60"]);
        assert_eq!(of(&[0.0, 1.9e6]), ["0", "500k", "1000k", "1500k"]);
        assert_eq!(of(&[0.0, 950e6]), ["0", "200M", "400M", "600M", "800M"]);
        assert_eq!(of(&[-3.0, 3.0]), ["−2", "0", "2"]);
    }

    #[test]
    fn logarithmic_ticks_are_decades() {
        let axis = Axis {
            log: true,
            ..Axis::default()
        };
        let of = |values: &[f64]| labelled(&axis, values, 6);
        assert_eq!(of(&[0.1, 1e4]), ["0.1", "1", "10", "100", "1000", "10k"]);
        assert_eq!(of(&[1.0, 9.0]), ["1", "2", "5"]);
        assert_eq!(of(&[1e-6, 1e3]), ["10⁻⁶", "0.0001", "0.01", "1", "100"]);
        assert_eq!(of(&[100.0, 130.0]), ["100", "110", "120", "130"]);
        assert_eq!(of(&[0.0, -1.0, 5.0]), ["4", "6", "8", "10"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.05, "0.05"),
            (12.345, "12.3"),
            (940.2, "940"),
            (1234.0, "1234"),
            (12_345.0, "12.3k"),
            (-1.5e9, "−1.5G"),
            (2e-5, "2·10⁻⁵"),
            (1e-5, "10⁻⁵"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
