// A peer that speaks through libudt, for the tests of crates/lab/tests/udt_interop.rs.
//
//   udt_peer recv IP BYTES          listens, prints its port, takes BYTES, prints their digest
//   udt_peer serve IP BYTES         listens, prints its port, sends BYTES to whoever connects
//   udt_peer send IP PORT BYTES     connects and sends BYTES
//   udt_peer fetch IP PORT BYTES    connects and takes BYTES
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <udt/udt.h>

namespace {

struct Address {
    sockaddr_storage bytes{};
    socklen_t len = 0;
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

void check(bool good, const char* what) {
    if (!good) {
        std::fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
        std::exit(1);
    }
}

uint8_t content(uint64_t at) { return static_cast<uint8_t>(at * 131 + at / 251); }

void send_all(UDTSOCKET s, uint64_t bytes) {
    std::vector<char> block(100000);
    for (uint64_t at = 0; at < bytes;) {
        size_t n = std::min<uint64_t>(block.size(), bytes - at);
        for (size_t i = 0; i < n; ++i) block[i] = static_cast<char>(content(at + i));
        int sent = UDT::send(s, block.data(), static_cast<int>(n), 0);
        check(sent != UDT::ERROR, "send");
        at += static_cast<uint64_t>(sent);
    }
}

void take_all(UDTSOCKET s, uint64_t bytes) {
    std::vector<char> block(100000);
    uint64_t got = 0;
    while (got < bytes) {
        int n = UDT::recv(s, block.data(), static_cast<int>(block.size()), 0);
        check(n != UDT::ERROR, "recv");
        for (int i = 0; i < n; ++i)
            if (static_cast<uint8_t>(block[static_cast<size_t>(i)]) != content(got + static_cast<uint64_t>(i))) {
                std::fprintf(stderr, "byte %llu differs\n", static_cast<unsigned long long>(got));
                std::exit(1);
            }
        got += static_cast<uint64_t>(n);
    }
    std::printf("took %llu\n", static_cast<unsigned long long>(got));
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    const std::string mode = argv[1];
    UDT::startup();
    const bool listens = mode == "recv" || mode == "serve";
    Address address(argv[2], listens ? 0 : std::atoi(argv[3]));
    const uint64_t bytes = std::strtoull(argv[argc - 1], nullptr, 10);
    UDTSOCKET s = UDT::socket(address.family, SOCK_STREAM, 0);
    if (listens) {
        check(UDT::bind(s, address.get(), static_cast<int>(address.len)) != UDT::ERROR, "bind");
        check(UDT::listen(s, 10) != UDT::ERROR, "listen");
        sockaddr_storage own{};
        int len = sizeof own;
        UDT::getsockname(s, reinterpret_cast<sockaddr*>(&own), &len);
        const auto* v4 = reinterpret_cast<sockaddr_in*>(&own);
        std::printf("%d\n", ntohs(v4->sin_port));
        std::fflush(stdout);
        sockaddr_storage peer{};
        len = sizeof peer;
        UDTSOCKET c = UDT::accept(s, reinterpret_cast<sockaddr*>(&peer), &len);
        check(c != UDT::INVALID_SOCK, "accept");
        if (mode == "recv") take_all(c, bytes); else send_all(c, bytes);
        UDT::close(c);
    } else {
        check(UDT::connect(s, address.get(), static_cast<int>(address.len)) != UDT::ERROR, "connect");
        if (mode == "send") send_all(s, bytes); else take_all(s, bytes);
        UDT::close(s);
    }
    UDT::cleanup();
    return 0;
}
