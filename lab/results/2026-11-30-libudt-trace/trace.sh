#!/bin/sh
# Traces libudt and our `udt4` in six cells on the emulator: acknowledgements, rate and capacity per second.
#
#   trace.sh FARHAUL UDT_PEER FOLDER [SECONDS]
#
# Needs root, tcpdump and an idle machine. UDT_PEER: g++ -O2 crates/lab/src/emulated/udt_peer.cpp -ludt
set -eu
farhaul=$1 peer=$2 out=$3 seconds=${4:-60}
here=$(dirname "$0") at=10.99.0.2:9000
for loss in 0.1% 1%; do for rtt in 0ms 100ms 400ms; do for who in libudt ours wake-11us; do
    case $who in
    libudt)
        far="$peer -m 8972 -b 1000000000 listen 10.99.0.2 9000 sink"
        near="$peer -m 8972 -b 1000000000 connect 10.99.0.2 9000 blast $seconds" ;;
    *)
        protocol=udt4:mss=8972
        [ $who = ours ] || protocol=$protocol,wake=11
        far="$farhaul compat udt4 server --listen $at"
        far="$far --protocol $protocol"
        near="$farhaul compat udt4 client $at --protocol $protocol -t $seconds" ;;
    esac
    name=$out/$who-$rtt-$loss
    "$farhaul" wan run --i-know --rtt $rtt --loss $loss --rate 10Gbit --queue 18MB --mtu 9000 --far "$far" -- \
        sh -c "tcpdump -q -n -U -s 120 -i any -w $name.pcap 'udp and udp[8] & 0x80 != 0' & dump=\$!
            until [ -s $name.pcap ]; do sleep 0.1; done
            $near
            kill -INT \$dump; wait"
    printf '%s: ' "${name##*/}" >>"$out/shares"
    python3 "$here/udt_trace.py" "$name.pcap" >"$name.csv" 2>>"$out/shares"
    rm "$name.pcap"
done; done; done
