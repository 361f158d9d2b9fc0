//! Declared parameters.
#![no_main]

use farhaul_haul::wire::params::Params;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(params) = Params::decode(data) {
        assert_eq!(Params::decode(&params.encode()), Ok(params));
    }
});
