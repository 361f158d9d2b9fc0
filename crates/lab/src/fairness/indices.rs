//! How is fairness put into one number?

/// Jain's index of fairness, 1/n to 1; none if no flow got anything. R. Jain, D. Chiu and W. Hawe,
/// "A Quantitative Measure of Fairness", DEC-TR-301, 1984.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|s| s * s).sum();
    let flows = u32::try_from(shares.len()).map_or(f64::INFINITY, f64::from);
    (squares > 0.0).then(|| sum * sum / (flows * squares))
}

/// What company costs: the part of `solo` that `shared` lacks, at most 1; below zero if company helped,
/// none without a `solo`. R. Ware et al., "Beyond Jain's Fairness Index", `HotNets` 2019, for a figure
/// of which more is better.
pub fn harm(solo: f64, shared: f64) -> Option<f64> {
    (solo > 0.0).then(|| (solo - shared) / solo)
}

/// The mean; none of nothing.
pub(super) fn mean(values: &[u64]) -> Option<f64> {
    let sum: u64 = values.iter().sum();
    (!values.is_empty()).then(|| float(sum) / float(values.len() as u64))
}

/// The value that a twentieth of `values` exceeds; none of nothing.
pub(super) fn p95(values: &[u64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
    sorted.get(at).map(|v| float(*v))
}

/// `a / b`, if there is a `b`.
pub(super) fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| float(a) / float(b))
}

#[expect(clippy::cast_precision_loss, reason = "figures are not exact to 2^-53")]
pub(super) const fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-9)
    }

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_winner_of_all() {
        assert!(near(jain(&[3.0, 3.0, 3.0]), 1.0));
        assert!(near(jain(&[0.0, 7.0, 0.0, 0.0]), 0.25));
        // Jain's own example form: (1 + 3)^2 / (2 * (1 + 9)).
        assert!(near(jain(&[1.0, 3.0]), 0.8));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }

    #[test]
    fn harm_is_the_lost_part_of_being_alone() {
        assert!(near(harm(100.0, 50.0), 0.5));
        assert!(near(harm(100.0, 0.0), 1.0));
        assert!(near(harm(80.0, 100.0), -0.25));
        assert_eq!(harm(0.0, 1.0), None);
    }

    #[test]
    fn percentiles_and_means_of_few_and_many() {
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert!(near(p95(&hundred), 95.0));
        assert!(near(p95(&[7]), 7.0));
        assert!(near(mean(&hundred), 50.5));
        assert_eq!((p95(&[]), mean(&[]), ratio(1, 0)), (None, None, None));
    }

    proptest! {
        #[test]
        fn jain_knows_no_scale_and_no_order(
            mut shares in prop::collection::vec(0.1_f64..1e9, 1..20), scale in 0.1_f64..1e3
        ) {
            let index = jain(&shares).unwrap();
            let least = 1.0 / f64::from(u32::try_from(shares.len()).unwrap());
            prop_assert!(index >= least - 1e-9 && index <= 1.0 + 1e-9);
            shares.reverse();
            for share in &mut shares {
                *share *= scale;
            }
            prop_assert!((jain(&shares).unwrap() - index).abs() < 1e-9);
        }
    }
}
