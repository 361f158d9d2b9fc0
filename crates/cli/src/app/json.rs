//! Paths in JSON objects.

use serde_json::Value;

use crate::ssh::to_hex;

/// Sets a member of `object` to a path: as text, and in hexadecimal as `NAME_hex` besides where it is not UTF-8.
pub(crate) fn put_path(object: &mut Value, name: &str, path: &[u8]) {
    object[name] = String::from_utf8_lossy(path).into();
    if str::from_utf8(path).is_err() {
        object[format!("{name}_hex")] = to_hex(path).into();
    }
}
