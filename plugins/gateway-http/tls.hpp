// TLS between a connection and its bytes, by OpenSSL over memory buffers and without I/O (tls.cpp is the one file that names
// its headers). TLS 1.2 and 1.3, HTTP/1.1 by ALPN, no renegotiation, no tickets, no sessions kept. Key material is read
// once, before the second filter.
// Not responsible for time: a handshake has to be over within the connection's header_timeout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace hf::gateway {

// A certificate with its chain, or a key: the largest are a tenth of it.
inline constexpr std::size_t kPemBytesMax = std::size_t{256} * 1024;

// What all connections share.
class TlsKeys {
public:
    // PEM: the certificate and what signed it, in order; its key, without a passphrase.
    static Result<std::unique_ptr<TlsKeys>> create(std::string_view certificate,
                                                   std::string_view key);
    ~TlsKeys();
    TlsKeys(const TlsKeys&) = delete;
    TlsKeys& operator=(const TlsKeys&) = delete;

private:
    friend class TlsStream;
    struct State;
    explicit TlsKeys(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

// One connection's.
class TlsStream {
public:
    enum class Got : std::uint8_t {
        Data,
        NeedMore,
        Ended,   // the peer said that it sends nothing more
        Broken,  // no TLS, or none that is spoken here; say what drain() has, and close
    };

    explicit TlsStream(const TlsKeys& keys);
    ~TlsStream();
    TlsStream(const TlsStream&) = delete;
    TlsStream& operator=(const TlsStream&) = delete;

    // What came from the network.
    void receive(std::string_view bytes);
    // What it means, a piece at a time; goes on with the handshake first.
    Got read(char* to, std::size_t room, std::size_t& size);
    // The handshake is over: write() may be called.
    [[nodiscard]] bool is_ready() const;
    // False: nothing more can be sent.
    [[nodiscard]] bool write(BytesView plain);
    // Says that nothing more comes. False: it was said before, or there is nobody to say it to.
    bool say_goodbye();
    // Appends what is to be sent to the network.
    void drain(Bytes& out);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace hf::gateway
