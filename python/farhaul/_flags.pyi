# Made of the definition of the flags: tests/test_flags.py prints it.
from collections.abc import Sequence
from os import PathLike
from typing import Literal

from typing_extensions import TypedDict

_Switch = bool | None
_Value = str | int | float | PathLike[str] | None

class BenchFlags(TypedDict, total=False):
    bidir: _Switch
    bytes: _Value
    cc: _Value
    identity: _Value
    interval: _Value
    lanes: _Value
    law_time: _Switch
    omit: _Value
    path_memory: _Value
    plot: _Value
    policy: _Value
    protocol: _Value
    rate: _Value
    reverse: _Switch
    tcp: _Switch
    time: _Value
    udp: _Switch

class BenchServeFlags(TypedDict, total=False):
    cc: _Value
    identity: _Value
    listen: _Value
    max_policy: _Value
    max_time: _Value
    one_off: _Switch
    policy: _Value
    protocol: _Value
    rate: _Value
    tcp: _Switch

class CpFlags(TypedDict, total=False):
    acls: _Switch
    archive: _Switch
    backup: _Value | bool
    checksum: _Switch
    copy_links: _Switch
    delete: _Switch
    delete_excluded: _Switch
    dry_run: _Switch
    exclude: _Value | Sequence[_Value]
    exclude_from: _Value | Sequence[_Value]
    fallback: Literal['auto', 'never'] | None
    files_from: _Value
    hard_links: _Switch
    identity: _Value
    ignore_existing: _Switch
    include: _Value | Sequence[_Value]
    include_from: _Value | Sequence[_Value]
    install_remote: Literal['ask', 'yes'] | None | bool
    ipv4: _Switch
    ipv6: _Switch
    lanes: _Value
    links: Literal['keep', 'follow', 'skip'] | None | bool
    max_delete: _Value
    max_rate: _Value
    max_size: _Value
    max_time: _Value
    merge: _Switch
    min_size: _Value
    name: _Value
    no_sync: _Switch
    null: _Switch
    numeric_ids: _Switch
    one_file_system: _Switch
    path_memory: _Value
    policy: _Value
    preserve: _Value | Sequence[_Value] | bool
    recursive: _Switch
    remote_bin: _Value
    remote_port: _Value
    retry: _Value | bool
    shard: _Value
    ssh: _Value
    ssh_config: _Value
    ssh_option: _Value | Sequence[_Value]
    tcp_port: _Value
    ticket_file: _Value
    trust_any: _Switch
    udp_timeout: _Value
    update: _Switch
    verbose: _Switch
    verify_disk: _Switch
    whole_file: _Switch
    xattrs: _Switch

class DoctorFlags(TypedDict, total=False):
    disk: _Value
    fallback: Literal['auto', 'never'] | None
    fix_sysctl: _Value | bool
    identity: _Value
    install_remote: Literal['ask', 'yes'] | None | bool
    remote_bin: _Value
    remote_port: _Value
    ssh: _Value
    ssh_config: _Value
    ssh_option: _Value | Sequence[_Value]
    tcp_port: _Value
    time: _Value
    udp_timeout: _Value

class LsFlags(TypedDict, total=False):
    fallback: Literal['auto', 'never'] | None
    identity: _Value
    install_remote: Literal['ask', 'yes'] | None | bool
    ipv4: _Switch
    ipv6: _Switch
    long: _Switch
    recursive: _Switch
    remote_bin: _Value
    remote_port: _Value
    ssh: _Value
    ssh_config: _Value
    ssh_option: _Value | Sequence[_Value]
    tcp_port: _Value
    ticket_file: _Value
    trust_any: _Switch
    udp_timeout: _Value

class ProtocolsFlags(TypedDict, total=False):
    pass

class ServeFlags(TypedDict, total=False):
    config: _Value
    control: _Value
    drain: _Value
    identity: _Value
    listen: _Value
    log_format: Literal['text', 'json'] | None
    max_handshakes_per_source: _Value
    max_per_key: _Value
    max_per_source: _Value
    max_policy: _Value
    max_probe: _Value
    max_rate: _Value
    max_sessions: _Value
    metrics: _Value | bool
    no_sync: _Switch
    tcp: _Value | bool
    tickets: _Value
    verbose: _Switch
