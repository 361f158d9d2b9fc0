//! Reads the `[[profile]]` of a file, in its order: groups of symbols that belong together.

use super::source::{Fields, Problem};
use crate::emulated::Group;

const PROFILE: [&str; 3] = ["name", "symbols", "outside"];

/// Groups of symbols, each once.
pub(super) fn groups(top: &Fields<'_>) -> Result<Vec<Group>, Problem> {
    let mut groups: Vec<Group> = Vec::new();
    for fields in top.tables("profile", &PROFILE)? {
        let name = fields.needed("name", "\"control\"")?.value;
        if groups.iter().any(|g| g.name == name) {
            let text = format!("there are two [[profile]] called '{name}'");
            return Err(fields.problem("name", text));
        }
        let symbols = fields.patterns("symbols")?;
        let group = Group::new(&name, symbols, fields.flag("outside")?);
        groups.push(group.map_err(|e| fields.problem("name", e))?);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use crate::{
        reference::Reference,
        run_store::Backend,
        scenario::{File, Variant},
    };

    const FILE: &str = "name = \"f\"\nduration = \"1s\"\nbackends = [\"sim\", \"emu\"]\n\
        [[link]]\nname = \"l\"\nrate = \"1Mbit\"\n[[flow]]\nname = \"a\"\n";

    fn read(more: &str, backend: Backend) -> Result<File, String> {
        let variant = Variant {
            backend,
            ..Variant::default()
        };
        let text = format!("{FILE}{more}");
        File::read_as("f.toml", &text, variant, &Reference::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn groups_are_of_the_emulator_and_part_of_what_a_run_is_of() {
        let group = |symbol: &str| {
            format!("[[profile]]\nname = \"io\"\nsymbols = ['{symbol}']\noutside = true\n")
        };
        let of = |more: &str| read(more, Backend::Emu).unwrap().plans[0].clone();
        let plan = of(&group("x{2}"));
        let profile = plan.profile.as_ref().unwrap();
        assert_eq!((profile.0.len(), &*profile.0[0].name), (1, "io"));
        assert!(profile.0[0].outside && profile.0[0].symbols[0].is_match("xx"));
        assert!(of("").profile.is_none());
        assert_ne!(plan.fingerprint(), of("").fingerprint());
        assert_ne!(plan.fingerprint(), of(&group("y")).fingerprint());
        let simulated = read(&group("x"), Backend::Sim).unwrap();
        assert!(
            simulated.plans[0].profile.is_none(),
            "there is nothing to sample"
        );
    }

    #[test]
    fn what_is_no_group_is_refused_with_its_place() {
        let cases = [
            ("[[profile]]\nsymbols = ['x']\n", "needs name"),
            ("[[profile]]\nname = \"io\"\n", "needs symbols"),
            (
                "[[profile]]\nname = \"other\"\nsymbols = ['x']\n",
                "which is the rest",
            ),
            (
                "[[profile]]\nname = \"io\"\nsymbols = ['(x']\n",
                "f.toml:11:12",
            ),
            (
                "[[profile]]\nname = \"io\"\nsymbols = 'x'\n",
                "a list of texts",
            ),
            (
                "[[profile]]\nname = \"io\"\nsymbol = ['x']\n",
                "did you mean 'symbols'?",
            ),
            (
                "[[profile]]\nname = \"io\"\nsymbols = ['x']\n[[profile]]\nname = \"io\"\nsymbols = ['y']\n",
                "there are two [[profile]] called 'io'",
            ),
        ];
        for (more, expected) in cases {
            let said = read(more, Backend::Emu).unwrap_err();
            assert!(said.contains(expected), "{more}: {said}");
        }
    }
}
