#include "plugins/gateway-http/tls.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <array>
#include <string>

#include "abi/base/check.hpp"

namespace hf::gateway {

namespace {

// The one protocol spoken here, as ALPN spells it.
constexpr std::string_view kHttp11 = "http/1.1";

template <class T, void (*kFree)(T*)>
struct Free {
    void operator()(T* what) const { kFree(what); }
};
using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX, SSL_CTX_free>>;
using Certificate = std::unique_ptr<X509, Free<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, EVP_PKEY_free>>;
using Memory = std::unique_ptr<BIO, Free<BIO, BIO_vfree>>;
using Stream = std::unique_ptr<SSL, Free<SSL, SSL_free>>;

Error because(const std::string& what) {
    std::array<char, 256> text{};
    ERR_error_string_n(ERR_get_error(), text.data(), text.size());
    ERR_clear_error();
    return fail(Code::Invalid, what + ": " + text.data());
}

// SAFETY: OpenSSL reads from it only.
Memory memory_of(std::string_view text) {
    return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

int choose_protocol(SSL*,
                    const unsigned char** chosen,
                    unsigned char* chosen_size,
                    const unsigned char* offered,
                    unsigned size,
                    void*) {
    for (unsigned at = 0; at < size;) {
        const unsigned length = offered[at++];
        if (length > size - at) break;
        // SAFETY: bytes of any kind may be viewed as characters.
        const std::string_view name(reinterpret_cast<const char*>(offered) + at, length);
        if (name == kHttp11) {
            *chosen = offered + at;
            *chosen_size = static_cast<unsigned char>(length);
            return SSL_TLSEXT_ERR_OK;
        }
        at += length;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

// A key that asks for a passphrase has nobody to ask.
int no_passphrase(char*, int, int, void*) {
    return -1;
}

Result<void> take_certificate(SSL_CTX* context, std::string_view text) {
    const Memory bytes = memory_of(text);
    const Certificate first(PEM_read_bio_X509(bytes.get(), nullptr, no_passphrase, nullptr));
    if (first == nullptr || SSL_CTX_use_certificate(context, first.get()) != 1)
        return because("tls_certificate holds no certificate in PEM");
    for (;;) {
        Certificate next(PEM_read_bio_X509(bytes.get(), nullptr, no_passphrase, nullptr));
        if (next == nullptr) break;
        if (SSL_CTX_add0_chain_cert(context, next.get()) != 1)
            return because("a certificate of tls_certificate's chain is not taken");
        // The context owns it now.
        (void)next.release();
    }
    ERR_clear_error();
    return {};
}

Result<void> take_key(SSL_CTX* context, std::string_view text) {
    const Memory bytes = memory_of(text);
    const Key key(PEM_read_bio_PrivateKey(bytes.get(), nullptr, no_passphrase, nullptr));
    if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1)
        return because("tls_key holds no key of tls_certificate in PEM without a passphrase");
    if (SSL_CTX_check_private_key(context) != 1)
        return because("tls_key is not the key of tls_certificate");
    return {};
}

}  // namespace

struct TlsKeys::State {
    Context context;
};

TlsKeys::TlsKeys(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsKeys::~TlsKeys() = default;

Result<std::unique_ptr<TlsKeys>> TlsKeys::create(std::string_view certificate,
                                                 std::string_view key) {
    auto state = std::make_unique<State>();
    state->context.reset(SSL_CTX_new(TLS_server_method()));
    SSL_CTX* const context = state->context.get();
    if (context == nullptr) return because("TLS cannot be started");
    (void)SSL_CTX_set_options(context,
                              SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                  SSL_OP_CIPHER_SERVER_PREFERENCE);
    // An idle connection keeps no buffers; a stream's bytes are written again from wherever they lie then.
    (void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    // Of TLS 1.2 what has forward secrecy and authenticated encryption; TLS 1.3 has nothing else.
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_num_tickets(context, 0) != 1 ||
        SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
        return because("TLS cannot be set up");
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
    HF_TRY(take_certificate(context, certificate));
    HF_TRY(take_key(context, key));
    return std::unique_ptr<TlsKeys>(new TlsKeys(std::move(state)));
}

struct TlsStream::State {
    Stream stream;
    BIO* in = nullptr;   // the stream's
    BIO* out = nullptr;  // the stream's
    bool broken = false;
    bool said_goodbye = false;
};

TlsStream::TlsStream(const TlsKeys& keys) : state_(std::make_unique<State>()) {
    State& s = *state_;
    s.stream.reset(SSL_new(keys.state_->context.get()));
    s.in = BIO_new(BIO_s_mem());
    s.out = BIO_new(BIO_s_mem());
    HF_CHECK(s.stream != nullptr && s.in != nullptr && s.out != nullptr, "memory for a stream");
    SSL_set_bio(s.stream.get(), s.in, s.out);
    SSL_set_accept_state(s.stream.get());
}

TlsStream::~TlsStream() = default;

void TlsStream::receive(std::string_view bytes) {
    const int written = BIO_write(state_->in, bytes.data(), static_cast<int>(bytes.size()));
    HF_CHECK(written == static_cast<int>(bytes.size()), "memory takes what came");
}

TlsStream::Got TlsStream::read(char* to, std::size_t room, std::size_t& size) {
    State& s = *state_;
    size = 0;
    if (s.broken) return Got::Broken;
    ERR_clear_error();
    const int got = SSL_read_ex(s.stream.get(), to, room, &size);
    if (got == 1) return Got::Data;
    switch (SSL_get_error(s.stream.get(), got)) {
        case SSL_ERROR_WANT_READ:
            return Got::NeedMore;
        case SSL_ERROR_ZERO_RETURN:
            return Got::Ended;
        default:
            s.broken = true;
            ERR_clear_error();
            return Got::Broken;
    }
}

bool TlsStream::is_ready() const {
    return SSL_is_init_finished(state_->stream.get()) == 1 && !state_->broken;
}

bool TlsStream::write(BytesView plain) {
    State& s = *state_;
    ERR_clear_error();
    std::size_t written = 0;
    if (!plain.empty() &&
        (SSL_write_ex(s.stream.get(), plain.data(), plain.size(), &written) != 1 ||
         written != plain.size())) {
        s.broken = true;
        ERR_clear_error();
        return false;
    }
    return true;
}

bool TlsStream::say_goodbye() {
    State& s = *state_;
    if (s.said_goodbye || !is_ready()) return false;
    s.said_goodbye = true;
    ERR_clear_error();
    return SSL_shutdown(s.stream.get()) >= 0;
}

void TlsStream::drain(Bytes& out) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(state_->out, &data);
    if (size <= 0) return;
    // SAFETY: bytes of any kind may be viewed as unsigned.
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(data);
    out.insert(out.end(), bytes, bytes + size);
    (void)BIO_reset(state_->out);
}

}  // namespace hf::gateway
