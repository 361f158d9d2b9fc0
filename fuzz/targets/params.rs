//! Declared parameters.

use farhaul_haul::wire::params::Params;

pub(crate) fn run(data: &[u8]) {
    if let Ok(params) = Params::decode(data) {
        assert_eq!(Params::decode(&params.encode()), Ok(params));
    }
}
