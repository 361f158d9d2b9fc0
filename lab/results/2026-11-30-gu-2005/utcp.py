#!/usr/bin/env python3
"""Compares what TCP over datagrams (U-TCP) and the kernel's TCP (K-TCP) cost the whole machine.

usage: utcp.py FARHAUL [RUNS] [SECONDS]

Both run over a veth pair between two namespaces, limited to 1 Gbit/s by tbf, without the emulator.
Cost is the busy time of all processors by the gigabits that arrived: medians and quartiles. Runs
alternate. The last column is what the machine did before them, in cores. The machine has to be idle; run as root.
"""
import json, os, statistics, subprocess, sys, time


def sh(*words, **kw):
    return subprocess.run(words, check=True, capture_output=True, text=True, **kw)


def busy():
    with open("/proc/stat") as file:
        n = [int(x) for x in file.readline().split()[1:]]
    return (sum(n[:8]) - n[3] - n[4]) / os.sysconf("SC_CLK_TCK")


def net(mtu):
    for name in ("ga", "gb"):
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
        sh("ip", "netns", "add", name)
    sh("ip", "link", "add", "va", "netns", "ga", "mtu", str(mtu), "type", "veth", "peer", "name", "vb", "netns", "gb", "mtu", str(mtu))
    for name, link, ip in (("ga", "va", "10.98.0.1/24"), ("gb", "vb", "10.98.0.2/24")):
        sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "-n", name, "addr", "add", ip, "dev", link)
        sh("ip", "-n", name, "link", "set", link, "up")
        sh("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", "1gbit", "burst", "256kb", "limit", "2mb")


def run(program, who, seconds):
    at = "10.98.0.2:7000"
    enter = lambda name: ["ip", "netns", "exec", name]
    if who == "K-TCP":
        server, client = [program, "_tcp", "serve", at], [program, "_tcp", "blast", at, "reno", "--time", "%ds" % seconds]
    else:
        how = ["--protocol", "tcp:mtu=%s" % MTU, "--cc", "reno"]
        server = [program, "bench", "serve", "-1", "--listen", at, *how]
        client = [program, "bench", at, *how, "-t", str(seconds), "-J"]
    far = subprocess.Popen(enter("gb") + server, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(200):
        if ":7000" in sh(*enter("gb"), "ss", "-lntu").stdout:
            break
        time.sleep(0.02)
    before, began = busy(), time.monotonic()
    near = subprocess.run(enter("ga") + client, capture_output=True, text=True)
    cost, took = busy() - before, time.monotonic() - began
    far.terminate()
    far.wait()
    if near.returncode:
        sys.exit("%s: %s" % (who, near.stderr or near.stdout))
    said = json.loads(near.stdout[near.stdout.index("{") :])
    got = said.get("received", said.get("bytes"))
    return 100 * cost / (got * 8 / 1e9), got * 8 / took / 1e9


def quiet(seconds=2):
    before = busy()
    time.sleep(seconds)
    return (busy() - before) / seconds


MTU = 1500
if __name__ == "__main__":
    program, runs, seconds = sys.argv[1], int((sys.argv[2:] or [20])[0]), int((sys.argv[3:] or [5])[0])
    print("mtu,system,runs,percent_of_a_core_per_gbps,quartile_1,quartile_3,gbps,idle_cores")
    for MTU in (1500, 9000):
        net(MTU)
        idle = quiet()
        found = {"K-TCP": [], "U-TCP": []}
        for _ in range(runs):
            for who in found:
                found[who].append(run(program, who, seconds))
        for who, each in found.items():
            costs, rates = zip(*each)
            q = statistics.quantiles(costs, n=4)
            print(f"{MTU},{who},{runs},{q[1]:.2f},{q[0]:.2f},{q[2]:.2f},{statistics.median(rates):.3f},{idle:.3f}", flush=True)
