// A peer that speaks through libudt, for the tests in crates/lab/tests/udt_interop and for
// runs on the emulator.
//
//   udt_peer [OPTIONS] HOW IP PORT ACTION...
//
// HOW     listen    takes -n connections; PORT 0 lets the kernel choose; prints the port
//         connect   makes -n connections, all from one UDP port
//         meet      rendezvous, from local port -l
// ACTION  send BYTES | recv BYTES           the stream, made and checked by `content`
//         sendfile PATH | recvfile PATH BYTES
//         ask NAME PATH | give FOLDER       as the samples `recvfile` and `sendfile`, numbers as this host has them
//         sendmsg COUNT TTL ORDERED         messages, made and checked by `message`; TTL in ms or -1
//         recvmsg COUNT                     that many, or with 0 all until the peer closes
//         blast SECONDS | push BYTES | sink as fast as it goes, with what it cost
// OPTIONS -m MSS  -b BYTES (both buffers and the window for them)  -n CONNECTIONS  -l PORT
//         -i MS (parts of the sink's series)  -r BYTES/s (never faster)
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <sys/resource.h>
#include <udt/udt.h>

namespace {

struct Options {
    int mss = 0;
    int64_t buffer = 0;
    int connections = 1;
    int local = 0;
    int64_t interval = 0;
    int64_t rate = 0;
};

using Words = std::vector<std::string>;

struct Address {
    sockaddr_storage bytes{};
    int len = 0;
    int family = AF_INET;

    Address(const std::string& ip, int port) {
        auto* v4 = reinterpret_cast<sockaddr_in*>(&bytes);
        auto* v6 = reinterpret_cast<sockaddr_in6*>(&bytes);
        if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
            v4->sin_family = AF_INET;
            v4->sin_port = htons(static_cast<uint16_t>(port));
            len = sizeof *v4;
        } else {
            inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr);
            v6->sin6_family = AF_INET6;
            v6->sin6_port = htons(static_cast<uint16_t>(port));
            family = AF_INET6;
            len = sizeof *v6;
        }
    }
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "udt_peer: %s\n", what.c_str());
    std::exit(1);
}

void check(bool good, const char* what) {
    if (!good) fail(std::string(what) + ": " + UDT::getlasterror().getErrorMessage());
}

bool peer_closed() { return UDT::getlasterror().getErrorCode() == UDT::ERRORINFO::ECONNLOST; }

uint8_t content(uint64_t at) { return static_cast<uint8_t>(at * 131 + at / 251); }

// Message `i`: its number, big-endian, then bytes that belong to it.
std::vector<char> message(uint32_t i) {
    std::vector<char> out(4 + i * 7919ULL % 60000);
    for (int k = 0; k < 4; ++k) out[static_cast<size_t>(k)] = static_cast<char>(i >> (24 - 8 * k));
    for (size_t at = 4; at < out.size(); ++at) out[at] = static_cast<char>(content(i * 1009ULL + at));
    return out;
}

void send_block(UDTSOCKET s, const char* data, int n) {
    for (int done = 0; done < n;) {
        int sent = UDT::send(s, data + done, n - done, 0);
        check(sent != UDT::ERROR, "send");
        done += sent;
    }
}

void send_all(UDTSOCKET s, uint64_t bytes) {
    std::vector<char> block(100000);
    for (uint64_t at = 0; at < bytes;) {
        size_t n = std::min<uint64_t>(block.size(), bytes - at);
        for (size_t i = 0; i < n; ++i) block[i] = static_cast<char>(content(at + i));
        send_block(s, block.data(), static_cast<int>(n));
        at += n;
    }
}

void take_all(UDTSOCKET s, uint64_t bytes) {
    std::vector<char> block(100000);
    for (uint64_t got = 0; got < bytes;) {
        int n = UDT::recv(s, block.data(), static_cast<int>(block.size()), 0);
        check(n != UDT::ERROR, "recv");
        for (int i = 0; i < n; ++i, ++got)
            if (static_cast<uint8_t>(block[static_cast<size_t>(i)]) != content(got)) fail("byte " + std::to_string(got) + " differs");
    }
}

void send_file(UDTSOCKET s, const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::binary | std::ios::ate);
    int64_t size = file.tellg(), offset = 0;
    if (size < 0) fail(path + ": cannot be read");
    check(UDT::sendfile(s, file, offset, size) == size, "sendfile");
}

void take_file(UDTSOCKET s, const std::string& path, int64_t size) {
    int64_t offset = 0;
    check(UDT::recvfile2(s, path.c_str(), &offset, size) == size, "recvfile");
}

void take_block(UDTSOCKET s, char* data, int n) {
    for (int done = 0; done < n;) {
        int got = UDT::recv(s, data + done, n - done, 0);
        check(got != UDT::ERROR, "recv");
        done += got;
    }
}

void ask(UDTSOCKET s, const std::string& name, const std::string& path) {
    int32_t len = static_cast<int32_t>(name.size());
    send_block(s, reinterpret_cast<const char*>(&len), sizeof len);
    send_block(s, name.data(), len);
    int64_t size = 0;
    take_block(s, reinterpret_cast<char*>(&size), sizeof size);
    std::printf("%lld\n", static_cast<long long>(size));
    if (size > 0) take_file(s, path, size);
}

void give(UDTSOCKET s, const std::string& folder) {
    int32_t len = 0;
    take_block(s, reinterpret_cast<char*>(&len), sizeof len);
    std::string name(static_cast<size_t>(len), ' ');
    take_block(s, &name[0], len);
    std::ifstream file(folder + "/" + name, std::ios::binary | std::ios::ate);
    int64_t size = file ? static_cast<int64_t>(file.tellg()) : -1;
    send_block(s, reinterpret_cast<const char*>(&size), sizeof size);
    if (size > 0) send_file(s, folder + "/" + name);
}

void send_messages(UDTSOCKET s, uint32_t count, int ttl, bool ordered) {
    for (uint32_t i = 0; i < count; ++i) {
        std::vector<char> m = message(i);
        check(UDT::sendmsg(s, m.data(), static_cast<int>(m.size()), ttl, ordered) == static_cast<int>(m.size()), "sendmsg");
    }
}

void take_messages(UDTSOCKET s, uint32_t count) {
    std::vector<char> block(70000);
    uint32_t got = 0;
    for (; count == 0 || got < count; ++got) {
        int n = UDT::recvmsg(s, block.data(), static_cast<int>(block.size()));
        if (n == UDT::ERROR && count == 0 && peer_closed()) break;
        check(n != UDT::ERROR, "recvmsg");
        uint32_t i = 0;
        for (int k = 0; k < 4 && k < n; ++k) i = i << 8 | static_cast<uint8_t>(block[static_cast<size_t>(k)]);
        std::vector<char> m = message(i);
        if (m.size() != static_cast<size_t>(n) || std::memcmp(m.data(), block.data(), m.size()) != 0)
            fail("message " + std::to_string(i) + " differs");
        std::printf("%u\n", i);
    }
}

double cpu_seconds() {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    auto s = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
    return s(use.ru_utime) + s(use.ru_stime);
}

struct Account {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    double cpu = cpu_seconds();

    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }
    void say(uint64_t bytes, double over, const std::string& more) const {
        double gbps = over > 0 ? static_cast<double>(bytes) * 8 / over / 1e9 : 0;
        std::printf("{\"bytes\":%llu,\"seconds\":%.6f,\"goodput_bits_per_second\":%.0f,\"cpu_seconds\":%.6f%s}\n",
                    static_cast<unsigned long long>(bytes), over, gbps * 1e9, cpu_seconds() - cpu, more.c_str());
    }
};

// Since the program started; what a sender's time begins with.
const Account lifetime;

// What UDT itself counted, with its smoothed round-trip time every 10 ms.
class Watch {
  public:
    explicit Watch(UDTSOCKET s) : socket(s), connected(lifetime.seconds()), thread([this] { run(); }) {}
    ~Watch() { end(); }

    std::string end() {
        over = true;
        if (thread.joinable()) thread.join();
        UDT::TRACEINFO info{};
        bool known = UDT::perfmon(socket, &info, false) != UDT::ERROR;
        std::sort(rtts.begin(), rtts.end());
        auto at = [this](double share) { return rtts[static_cast<size_t>(share * static_cast<double>(rtts.size() - 1))]; };
        char text[300];
        int n = std::snprintf(text, sizeof text, ",\"connect_seconds\":%.6f,\"retransmits\":%d", connected, known ? info.pktRetransTotal : 0);
        if (!rtts.empty())
            std::snprintf(text + n, sizeof text - static_cast<size_t>(n), ",\"rtt_ms\":{\"min\":%.3f,\"p50\":%.3f,\"p99\":%.3f}", rtts[0], at(0.5), at(0.99));
        return text;
    }

  private:
    void run() {
        while (!over) {
            UDT::TRACEINFO info{};
            // Before its first measurement UDT has a guess.
            if (UDT::perfmon(socket, &info, false) != UDT::ERROR && info.pktRecvACKTotal > 1) rtts.push_back(info.msRTT);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }

    UDTSOCKET socket;
    double connected;
    std::atomic<bool> over{false};
    std::vector<double> rtts;
    std::thread thread;
};

void blast(UDTSOCKET s, double seconds) {
    std::vector<char> block(1 << 20);
    Watch watch(s);
    uint64_t sent = 0;
    for (double left; (left = seconds - lifetime.seconds()) > 0;) {
        // A buffer may take longer to empty than there is time.
        int most = std::max(1, static_cast<int>(left * 1000));
        UDT::setsockopt(s, 0, UDT_SNDTIMEO, &most, sizeof most);
        int n = UDT::send(s, block.data(), static_cast<int>(block.size()), 0);
        if (n == UDT::ERROR && UDT::getlasterror().getErrorCode() == UDT::ERRORINFO::ETIMEOUT) continue;
        check(n != UDT::ERROR, "send");
        sent += static_cast<uint64_t>(n);
    }
    lifetime.say(sent, lifetime.seconds(), watch.end());
    // What is buffered may take very long after losses: the receiver has its figure.
    linger none{0, 0};
    UDT::setsockopt(s, 0, UDT_LINGER, &none, sizeof none);
}

// All of it, and until the receiver has it.
void push(UDTSOCKET s, uint64_t bytes) {
    std::vector<char> block(1 << 20);
    Watch watch(s);
    for (uint64_t left = bytes; left > 0;) {
        int n = UDT::send(s, block.data(), static_cast<int>(std::min<uint64_t>(left, block.size())), 0);
        check(n != UDT::ERROR, "send");
        left -= static_cast<uint64_t>(n);
    }
    for (int buffered = 1; buffered > 0;) {
        int len = sizeof buffered;
        check(UDT::getsockopt(s, 0, UDT_SNDDATA, &buffered, &len) != UDT::ERROR, "buffered");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    lifetime.say(bytes, lifetime.seconds(), watch.end());
}

void sink(UDTSOCKET s, int64_t interval) {
    std::vector<char> block(1 << 20);
    Account account;
    uint64_t got = 0;
    double last = 0, each = static_cast<double>(interval) / 1000;
    std::vector<uint64_t> parts;
    for (;;) {
        int n = UDT::recv(s, block.data(), static_cast<int>(block.size()), 0);
        if (n == UDT::ERROR && peer_closed()) break;
        check(n != UDT::ERROR, "recv");
        got += static_cast<uint64_t>(n);
        last = account.seconds();
        if (interval > 0) {
            parts.resize(std::max(parts.size(), static_cast<size_t>(last / each) + 1));
            parts.back() += static_cast<uint64_t>(n);
        }
    }
    std::string series = ",\"intervals\":[";
    for (size_t i = 0; i < parts.size(); ++i) {
        double from = static_cast<double>(i) * each, to = i + 1 < parts.size() ? from + each : std::max(last, from + each / 1000);
        char part[200];
        std::snprintf(part, sizeof part, "%s{\"from\":%.6f,\"to\":%.6f,\"goodput_bits_per_second\":%.0f}", i ? "," : "", from, to,
                      static_cast<double>(parts[i]) * 8 / (to - from));
        series += part;
    }
    account.say(got, last, series + "]");
}

void act(UDTSOCKET s, const Words& w, const Options& options) {
    auto number = [&](size_t i) { return i < w.size() ? std::strtoull(w[i].c_str(), nullptr, 10) : 0; };
    const std::string& what = w[0];
    if (what == "send") send_all(s, number(1));
    else if (what == "recv") take_all(s, number(1));
    else if (what == "sendfile") send_file(s, w.at(1));
    else if (what == "recvfile") take_file(s, w.at(1), static_cast<int64_t>(number(2)));
    else if (what == "ask") ask(s, w.at(1), w.at(2));
    else if (what == "give") give(s, w.at(1));
    else if (what == "sendmsg") send_messages(s, static_cast<uint32_t>(number(1)), std::atoi(w.at(2).c_str()), number(3) == 1);
    else if (what == "recvmsg") take_messages(s, static_cast<uint32_t>(number(1)));
    else if (what == "blast") blast(s, std::atof(w.at(1).c_str()));
    else if (what == "push") push(s, number(1));
    else if (what == "sink") sink(s, options.interval);
    else fail("what is '" + what + "'?");
    UDT::close(s);
}

UDTSOCKET make(int family, const Options& options, const Words& w) {
    bool messages = w[0] == "sendmsg" || w[0] == "recvmsg";
    UDTSOCKET s = UDT::socket(family, messages ? SOCK_DGRAM : SOCK_STREAM, 0);
    if (options.mss) check(UDT::setsockopt(s, 0, UDT_MSS, &options.mss, sizeof(int)) != UDT::ERROR, "mss");
    if (options.rate) check(UDT::setsockopt(s, 0, UDT_MAXBW, &options.rate, sizeof options.rate) != UDT::ERROR, "rate");
    if (options.buffer) {
        int packets = static_cast<int>(options.buffer / (options.mss ? options.mss - 28 : 1472));
        int bytes = static_cast<int>(options.buffer);
        check(UDT::setsockopt(s, 0, UDT_FC, &packets, sizeof packets) != UDT::ERROR, "window");
        check(UDT::setsockopt(s, 0, UDT_SNDBUF, &bytes, sizeof bytes) != UDT::ERROR, "send buffer");
        check(UDT::setsockopt(s, 0, UDT_RCVBUF, &bytes, sizeof bytes) != UDT::ERROR, "receive buffer");
        check(UDT::setsockopt(s, 0, UDP_SNDBUF, &bytes, sizeof bytes) != UDT::ERROR, "UDP send buffer");
        check(UDT::setsockopt(s, 0, UDP_RCVBUF, &bytes, sizeof bytes) != UDT::ERROR, "UDP receive buffer");
    }
    return s;
}

int local_port(UDTSOCKET s) {
    sockaddr_storage own{};
    int len = sizeof own;
    UDT::getsockname(s, reinterpret_cast<sockaddr*>(&own), &len);
    return ntohs(reinterpret_cast<sockaddr_in*>(&own)->sin_port);
}

std::vector<UDTSOCKET> open(const std::string& how, const std::string& ip, int port, const Options& options, const Words& w) {
    Address there(ip, port);
    std::vector<UDTSOCKET> made;
    if (how == "listen") {
        UDTSOCKET s = make(there.family, options, w);
        check(UDT::bind(s, there.get(), there.len) != UDT::ERROR, "bind");
        check(UDT::listen(s, 100) != UDT::ERROR, "listen");
        std::printf("%d\n", local_port(s));
        std::fflush(stdout);
        for (int i = 0; i < options.connections; ++i) {
            sockaddr_storage peer{};
            int len = sizeof peer;
            made.push_back(UDT::accept(s, reinterpret_cast<sockaddr*>(&peer), &len));
            check(made.back() != UDT::INVALID_SOCK, "accept");
        }
        return made;
    }
    bool meets = how == "meet";
    int local = options.local;
    for (int i = 0; i < options.connections; ++i) {
        UDTSOCKET s = make(there.family, options, w);
        Address here(there.family == AF_INET ? "0.0.0.0" : "::", local);
        if (meets) check(UDT::setsockopt(s, 0, UDT_RENDEZVOUS, &meets, sizeof meets) != UDT::ERROR, "rendezvous");
        check(UDT::bind(s, here.get(), here.len) != UDT::ERROR, "bind");
        local = local_port(s);
        if (meets) {
            std::printf("%d\n", local);
            std::fflush(stdout);
        }
        check(UDT::connect(s, there.get(), there.len) != UDT::ERROR, "connect");
        made.push_back(s);
    }
    return made;
}

} // namespace

int main(int argc, char** argv) {
    Words w(argv + 1, argv + argc);
    Options options;
    while (w.size() >= 2 && w[0][0] == '-') {
        int64_t n = std::atoll(w[1].c_str());
        switch (w[0][1]) {
        case 'm': options.mss = static_cast<int>(n); break;
        case 'b': options.buffer = n; break;
        case 'n': options.connections = static_cast<int>(n); break;
        case 'i': options.interval = n; break;
        case 'r': options.rate = n; break;
        case 'l': options.local = static_cast<int>(n); break;
        default: fail("what is '" + w[0] + "'?");
        }
        w.erase(w.begin(), w.begin() + 2);
    }
    if (w.size() < 4) fail("arguments are missing; see the head of udt_peer.cpp");
    UDT::startup();
    const Words action(w.begin() + 3, w.end());
    std::vector<std::thread> threads;
    for (UDTSOCKET s : open(w[0], w[1], std::atoi(w[2].c_str()), options, action))
        threads.emplace_back([s, &action, &options] { act(s, action, options); });
    for (auto& thread : threads) thread.join();
    UDT::cleanup();
    return 0;
}
