//! Reads published numbers. `lab/reference/NAME.csv` is a table per paper, with one row for each
//! number. A row says where the number is printed, and whether it is printed there, derived from
//! what is, assumed, or recalled.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// Source of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The number stands in the paper.
    Printed,
    /// The number follows from what stands there.
    Derived,
    /// The number is an assumption about what the paper says in words.
    Assumed,
    /// The number is from memory: the source was not at hand.
    Recalled,
    /// The number is a target of this project.
    Owed,
    /// The number is what this project reached before, with a tolerance: against regressions.
    Recorded,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serialize::serialize(self, f)
    }
}

/// A published number: a value, a range, or a bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// Key by which scenarios refer to the number.
    pub id: String,
    /// Place where the number is printed, as in `Fig. 3`.
    pub place: String,
    /// Quantity that the number is of.
    pub quantity: String,
    /// The number.
    pub value: Option<f64>,
    /// The least, of a range or bound.
    pub low: Option<f64>,
    /// The greatest.
    pub high: Option<f64>,
    /// Unit of the number.
    pub unit: Unit,
    /// Source of the number.
    pub kind: Kind,
    /// Derivation of the number, or what it leaves open.
    pub note: String,
}

impl Fact {
    /// Least and greatest; a single number is both.
    pub fn bounds(&self) -> (Option<f64>, Option<f64>) {
        match (self.low, self.high) {
            (None, None) => (self.value, self.value),
            range => range,
        }
    }

    /// The number with its unit and how it is known.
    pub fn words(&self) -> String {
        let show = |x: f64| self.unit.show(x);
        let number = match (self.value, self.low, self.high) {
            (Some(value), ..) => show(value),
            (None, Some(low), Some(high)) => format!("{} to {}", show(low), show(high)),
            (None, Some(low), None) => format!("at least {}", show(low)),
            (None, None, Some(high)) => format!("at most {}", show(high)),
            (None, None, None) => "in words".into(),
        };
        match self.kind {
            Kind::Printed => number,
            kind => format!("{number} ({kind})"),
        }
    }
}

/// The published numbers of one paper.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reference {
    facts: BTreeMap<String, Fact>,
}

impl Reference {
    /// Reads the table called `file`.
    ///
    /// # Errors
    /// With the line and what is wrong there.
    pub fn read(file: &str, text: &str) -> Result<Self, String> {
        let mut facts = BTreeMap::new();
        let mut rows = csv::Reader::from_reader(text.as_bytes());
        for row in rows.deserialize::<Fact>() {
            let fact = row.map_err(|e| format!("{file}: {e}"))?;
            let numbers = [fact.low, fact.value, fact.high];
            let finite = numbers.iter().flatten().all(|x| x.is_finite());
            if fact.id.is_empty() || !finite || !numbers.iter().flatten().is_sorted() {
                return Err(format!(
                    "{file}: row '{}': it needs an id, and finite numbers with low <= value <= high",
                    fact.id
                ));
            }
            if let Some(twice) = facts.insert(fact.id.clone(), fact) {
                return Err(format!("{file}: there are two rows '{}'", twice.id));
            }
        }
        Ok(Self { facts })
    }

    /// The reference of the study to which the scenario file at `path` belongs:
    /// `lab/reference/NAME.csv` of `lab/scenarios/NAME/FILE.toml`. Empty if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn beside(path: &Path) -> Result<Self, String> {
        let folder = path.parent();
        let table = folder.and_then(|folder| {
            let name = folder.canonicalize().ok()?.file_name()?.to_os_string();
            let table = folder.join("../../reference").join(name);
            Some(table.with_added_extension("csv"))
        });
        match table.filter(|table| table.is_file()) {
            None => Ok(Self::default()),
            Some(table) => {
                let name = table.display().to_string();
                let text = fs::read_to_string(&table).map_err(|e| format!("{name}: {e}"))?;
                Self::read(&name, &text)
            }
        }
    }

    /// The row with this id.
    pub fn get(&self, id: &str) -> Option<&Fact> {
        self.facts.get(id)
    }

    /// Every row, by id.
    pub fn facts(&self) -> impl Iterator<Item = &Fact> + Clone {
        self.facts.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "id,place,quantity,value,low,high,unit,kind,note\n";

    #[test]
    fn rows_are_read_with_their_unit_and_kind() {
        let text = format!(
            "{HEAD}best,Fig. 3,\"UDT, rate\",3560000000,,,bit/s,derived,100 / 28.1\nlossy,IV A,rate,,,2e8,bit/s,printed,\n"
        );
        let reference = Reference::read("k.csv", &text).unwrap();
        let best = reference.get("best").unwrap();
        assert_eq!((best.kind, best.unit), (Kind::Derived, Unit::Rate));
        assert_eq!(best.words(), "3.56 Gbit/s (derived)");
        let lossy = reference.get("lossy").unwrap();
        assert_eq!(lossy.words(), "at most 200 Mbit/s");
        assert_eq!(lossy.bounds(), (None, Some(2e8)));
    }

    #[test]
    fn wrong_rows_are_refused_with_their_place() {
        for (row, part) in [
            ("a,p,q,fast,,,bit/s,printed,", "line: 2"),
            ("a,p,q,1,,,furlongs,printed,", "furlongs"),
            ("a,p,q,1,,,bit/s,guessed,", "guessed"),
            ("a,p,q,1,2,3,bit/s,printed,", "low <= value <= high"),
            ("a,p,q,nan,,,bit/s,printed,", "finite"),
            (
                "a,p,q,1,,,bit/s,printed,\na,p,q,1,,,bit/s,printed,",
                "two rows 'a'",
            ),
            ("a,p,q", "k.csv"),
        ] {
            let error = Reference::read("k.csv", &format!("{HEAD}{row}\n")).unwrap_err();
            assert!(error.contains(part), "{row}: {error}");
        }
    }
}
