#!/usr/bin/env python3
"""Reads UDT 4 control packets from a pcap and prints one CSV row per second.

usage: udt_trace.py FILE.pcap [PACKET_BYTES] > FILE.csv

Last, the share of full ACKs whose capacity is above 9 Gbit/s and below 0.9 Gbit/s goes to stderr: there
UDT's step changes by the factor of ten.

Columns: second since the first control packet; rate, the progress of the acknowledged number
(Gbit/s of packets of PACKET_BYTES); full and light ACKs, ACK2s, NAKs and the packets that NAKs
report; medians of what full ACKs carry: round-trip time (ms), receiving rate and capacity
(packets/s).
"""
import csv, statistics, struct, sys

ACK, NAK, ACK2 = 2, 3, 6


def packets(path):
    with open(path, "rb") as file:
        head = file.read(24)
        order = "<" if head[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
        nano = head[:4] in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
        link = struct.unpack(order + "I", head[20:24])[0]
        skip = {1: 14, 12: 0, 101: 0, 113: 16, 276: 20}[link]
        while len(record := file.read(16)) == 16:
            seconds, part, kept, _ = struct.unpack(order + "IIII", record)
            yield seconds + part / (1e9 if nano else 1e6), file.read(kept)[skip:]


def lost(numbers):
    """Packets in the list of a NAK: a number with its top bit begins a range."""
    count = at = 0
    while at < len(numbers):
        if numbers[at] >> 31 and at + 1 < len(numbers):
            count += numbers[at + 1] - (numbers[at] & 0x7FFFFFFF) + 1
            at += 2
        else:
            count += 1
            at += 1
    return count


def main():
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 8956
    rows, start, before, capacities = {}, None, None, []
    for time, ip in packets(sys.argv[1]):
        udt = ip[(ip[0] & 15) * 4 + 8 :]
        if len(udt) < 16 or not udt[0] & 0x80:
            continue
        kind = struct.unpack(">H", udt[:2])[0] & 0x7FFF
        words = struct.unpack(">%dI" % ((len(udt) - 16) // 4), udt[16 : 16 + (len(udt) - 16) // 4 * 4])
        start = time if start is None else start
        row = rows.setdefault(int(time - start), {"acked": 0, "full": 0, "light": 0, "ack2": 0, "nak": 0, "lost": 0, "rtt": [], "got": [], "capacity": []})
        if kind == ACK:
            if before is not None:
                row["acked"] += (words[0] - before) & 0x7FFFFFFF
            before = words[0]
            row["full" if len(words) >= 4 else "light"] += 1
            if len(words) >= 6:
                for name, value in (("rtt", words[1] / 1e3), ("got", words[4]), ("capacity", words[5])):
                    row[name].append(value)
                capacities.append(words[5] * size * 8 / 1e9)
        elif kind == ACK2:
            row["ack2"] += 1
        elif kind == NAK:
            row["nak"] += 1
            row["lost"] += lost(words)
    out = csv.writer(sys.stdout)
    out.writerow("second gbps full_acks light_acks ack2s naks lost rtt_ms receiving capacity".split())
    for second, row in sorted(rows.items()):
        middle = [round(statistics.median(row[name]), 3) if row[name] else "" for name in ("rtt", "got", "capacity")]
        out.writerow([second, round(row["acked"] * size * 8 / 1e9, 4), row["full"], row["light"], row["ack2"], row["nak"], row["lost"], *middle])
    if capacities:
        share = lambda holds: sum(map(holds, capacities)) / len(capacities)
        print("above 9 Gbit/s %.3f, below 0.9 %.3f" % (share(lambda c: c > 9), share(lambda c: c < 0.9)), file=sys.stderr)


main()
