#include "plugins/http-client/http.hpp"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "abi/base/check.hpp"

namespace hf::web {
namespace {

// Status line and headers; S3's are below 2 KiB, an actor's are 12 KiB at most.
constexpr std::size_t kHeadBytesMax = std::size_t{32} * 1024;

bool global_init() {
    static const bool done = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    return done;
}

std::string_view trim(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// A wrong option is a mistake here, not of the network.
template <class Value>
void set(CURL* easy, CURLoption option, Value value) {
    HF_CHECK(curl_easy_setopt(easy, option, value) == CURLE_OK, "libcurl knows the option");
}

}  // namespace

struct Http::Exchange {
    Id id = 0;
    CURL* easy = nullptr;
    curl_slist* list = nullptr;
    HttpRequest request;
    Done done;
    HttpAnswer answer;
    std::size_t head_bytes = 0;
    bool head_complete = false;  // of the answer that counts
    unsigned begun = 0;          // times that the request was about to be sent
    std::uint64_t body_at = 0;   // what was read of body_fd
    std::uint64_t taken = 0;     // bytes of the answer's body
    char error[CURL_ERROR_SIZE] = {};

    Exchange() = default;
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    ~Exchange() { curl_slist_free_all(list); }

    // A connection is ready and the request goes out next.
    static int on_ready(void* self, char*, char*, int, int) {
        // SAFETY: what prepare() set.
        auto& exchange = *static_cast<Exchange*>(self);
        const HttpRequest& request = exchange.request;
        const bool may = !request.once && (request.method == "GET" || request.method == "HEAD");
        const bool again = exchange.begun++ > 0 && !may;
        return again ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
    }
    static std::size_t on_body(char* bytes, std::size_t size, std::size_t count, void* self) {
        // SAFETY: what prepare() set.
        auto& exchange = *static_cast<Exchange*>(self);
        const std::size_t total = size * count;
        if (total > exchange.request.answer_bytes_max - exchange.taken) {
            exchange.answer.too_large = true;
            return 0;
        }
        exchange.taken += total;
        if (exchange.request.on_body) return exchange.request.on_body({bytes, total}) ? total : 0;
        exchange.answer.body.append(bytes, total);
        return total;
    }
    // The next piece of a body that is a file.
    static std::size_t on_read(char* to, std::size_t size, std::size_t count, void* self) {
        // SAFETY: as above.
        auto& exchange = *static_cast<Exchange*>(self);
        const HttpRequest& request = exchange.request;
        const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(
            std::uint64_t{size} * count, request.body_bytes - exchange.body_at));
        if (piece == 0) return 0;
        ssize_t got = -1;
        do {
            got = ::pread(request.body_fd, to, piece, static_cast<off_t>(exchange.body_at));
        } while (got < 0 && errno == EINTR);
        // A file that ends early would leave the peer waiting for the length it was told.
        if (got <= 0) return CURL_READFUNC_ABORT;
        exchange.body_at += static_cast<std::uint64_t>(got);
        return static_cast<std::size_t>(got);
    }
    static std::size_t on_header(char* bytes, std::size_t size, std::size_t count, void* self) {
        // SAFETY: as above.
        auto& exchange = *static_cast<Exchange*>(self);
        const std::size_t total = size * count;
        exchange.head_bytes += total;
        if (exchange.head_bytes > kHeadBytesMax) return 0;
        const std::string_view line(bytes, total);
        // The head of an answer on the way (100) does not belong to the one that counts.
        if (line.starts_with("HTTP/")) {
            exchange.answer.headers.clear();
            exchange.head_complete = false;
        }
        if (trim(line).empty()) exchange.head_complete = true;
        const std::size_t colon = line.find(':');
        if (colon == std::string_view::npos) return total;
        std::string name(line.substr(0, colon));
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
            return static_cast<char>(std::tolower(c));
        });
        exchange.answer.headers.emplace_back(std::move(name), trim(line.substr(colon + 1)));
        return total;
    }
};

const std::string& HttpAnswer::header(std::string_view name) const {
    static const std::string none;
    for (const auto& [known, value] : headers)
        if (known == name) return value;
    return none;
}

Http::Http(Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

Result<std::unique_ptr<Http>> Http::create(Loop& loop, Options options) {
    if (!global_init()) return fail(Code::Unavailable, "libcurl cannot be initialised");
    std::unique_ptr<Http> http(new Http(loop, std::move(options)));
    CURLM* multi = ::curl_multi_init();
    if (multi == nullptr) return fail(Code::Unavailable, "libcurl cannot be initialised");
    http->multi_ = multi;
    // SAFETY: the signatures differ from libcurl's in void pointers for its handle types only.
    curl_multi_setopt(
        multi, CURLMOPT_SOCKETFUNCTION, reinterpret_cast<curl_socket_callback>(&Http::on_socket));
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, http.get());
    // SAFETY: as above.
    curl_multi_setopt(multi,
                      CURLMOPT_TIMERFUNCTION,
                      reinterpret_cast<curl_multi_timer_callback>(&Http::on_timer));
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, http.get());
    curl_multi_setopt(
        multi, CURLMOPT_MAXCONNECTS, static_cast<long>(http->options_.connections_max));
    return http;
}

Http::~Http() {
    for (auto& [easy, exchange] : running_) {
        curl_multi_remove_handle(multi_, easy);
        curl_easy_cleanup(easy);
    }
    for (void* easy : idle_) curl_easy_cleanup(easy);
    if (multi_ != nullptr) curl_multi_cleanup(multi_);
    loop_.cancel(timer_);
}

Http::Id Http::send(HttpRequest request, Done done) {
    auto exchange = std::make_unique<Exchange>();
    const Id id = ++last_id_;
    exchange->id = id;
    exchange->request = std::move(request);
    exchange->done = std::move(done);
    if (waiting_.size() >= kWaitingMax) {
        loop_.after(0, [done = std::move(exchange->done)] {
            HttpAnswer answer;
            answer.sent = false;
            answer.trouble =
                std::to_string(kWaitingMax) + " requests wait for a connection already";
            done(answer);
        });
        return id;
    }
    waiting_.push_back(std::move(exchange));
    start_waiting();
    return id;
}

bool Http::cancel(Id id) {
    const auto queued = std::find_if(
        waiting_.begin(), waiting_.end(), [&](const auto& one) { return one->id == id; });
    if (queued != waiting_.end()) {
        waiting_.erase(queued);
        return false;
    }
    const auto running = std::find_if(
        running_.begin(), running_.end(), [&](const auto& one) { return one.second->id == id; });
    if (running == running_.end()) return true;
    void* easy = running->first;
    const bool sent = running->second->begun > 0;
    // Its connection is closed: an answer to nobody would be read as the next one's.
    curl_multi_remove_handle(multi_, easy);
    running_.erase(running);
    idle_.push_back(easy);
    start_waiting();
    return sent;
}

void Http::start_waiting() {
    while (!waiting_.empty() && running_.size() < options_.connections_max) {
        std::unique_ptr<Exchange> next = std::move(waiting_.front());
        waiting_.pop_front();
        start(std::move(next));
    }
}

void Http::start(std::unique_ptr<Exchange> exchange) {
    if (idle_.empty()) {
        CURL* fresh = ::curl_easy_init();
        HF_CHECK(fresh != nullptr, "memory for a request");
        idle_.push_back(fresh);
    }
    exchange->easy = idle_.back();
    idle_.pop_back();
    prepare(*exchange);
    CURL* easy = exchange->easy;
    running_.emplace(easy, std::move(exchange));
    HF_CHECK(curl_multi_add_handle(multi_, easy) == CURLM_OK, "a prepared request can be added");
}

void Http::prepare(Exchange& exchange) {
    CURL* easy = exchange.easy;
    const HttpRequest& request = exchange.request;
    curl_easy_reset(easy);
    set(easy, CURLOPT_URL, request.url.c_str());
    set(easy, CURLOPT_PATH_AS_IS, 1L);
    if (!request.target.empty()) set(easy, CURLOPT_REQUEST_TARGET, request.target.c_str());
    set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    // The signature covers the host: who is sent elsewhere has to sign again.
    set(easy, CURLOPT_FOLLOWLOCATION, 0L);
    set(easy, CURLOPT_PROXY, "");
    set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(easy, CURLOPT_NOSIGNAL, 1L);
    // A name server that does not answer must not hold the loop when a request is given up.
    set(easy, CURLOPT_QUICK_EXIT, 1L);
    set(easy, CURLOPT_TCP_NODELAY, 1L);
    set(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout_ms));
    set(easy,
        CURLOPT_CONNECTTIMEOUT_MS,
        static_cast<long>(std::min(options_.connect_timeout_ms, request.timeout_ms)));
    set(easy, CURLOPT_PREREQFUNCTION, &Exchange::on_ready);
    set(easy, CURLOPT_PREREQDATA, &exchange);
    set(easy, CURLOPT_ERRORBUFFER, &exchange.error[0]);
    set(easy, CURLOPT_WRITEFUNCTION, &Exchange::on_body);
    set(easy, CURLOPT_WRITEDATA, &exchange);
    set(easy, CURLOPT_HEADERFUNCTION, &Exchange::on_header);
    set(easy, CURLOPT_HEADERDATA, &exchange);
    set(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    set(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    set(easy, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    // The jail has no certificates of its own: no file and no directory is looked at.
    set(easy, CURLOPT_CAPATH, nullptr);
    set(easy, CURLOPT_CAINFO, nullptr);
    if (!options_.ca_pem.empty()) {
        curl_blob blob{};
        blob.data = options_.ca_pem.data();
        blob.len = options_.ca_pem.size();
        blob.flags = CURL_BLOB_NOCOPY;
        set(easy, CURLOPT_CAINFO_BLOB, &blob);
    }
    if (options_.idle_s_max != 0) set(easy, CURLOPT_MAXAGE_CONN, options_.idle_s_max);
    prepare_body(exchange);
    for (const auto& [name, value] : request.headers) {
        // To libcurl "name:" says that it is to send none.
        const std::string line = value.empty() ? name + ";" : name + ": " + value;
        exchange.list = curl_slist_append(exchange.list, line.c_str());
    }
    for (const std::string& name : request.left_out)
        exchange.list = curl_slist_append(exchange.list, (name + ":").c_str());
    // Waiting for a 100 costs a round trip, and curl would ask for one for five bytes.
    exchange.list = curl_slist_append(exchange.list, "Expect:");
    set(easy, CURLOPT_HTTPHEADER, exchange.list);
}

void Http::prepare_body(Exchange& exchange) {
    CURL* easy = exchange.easy;
    const HttpRequest& request = exchange.request;
    if (request.method == "HEAD") return set(easy, CURLOPT_NOBODY, 1L);
    const bool file = request.body_fd >= 0;
    // These have a length even when it is 0.
    const bool has_length =
        request.method == "PUT" || request.method == "POST" || request.method == "PATCH";
    if (file) {
        set(easy, CURLOPT_POST, 1L);
        set(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body_bytes));
        set(easy, CURLOPT_READFUNCTION, &Exchange::on_read);
        set(easy, CURLOPT_READDATA, &exchange);
    } else if (has_length || !request.body.empty()) {
        set(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
        set(easy, CURLOPT_POSTFIELDS, request.body.data());
    }
    // Unless it was one of the above, libcurl's own word is GET.
    if (request.method != "GET" || file || !request.body.empty())
        set(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

int Http::on_socket(void*, int fd, int what, void* self, void*) {
    // SAFETY: what create() set.
    auto& http = *static_cast<Http*>(self);
    if (what == CURL_POLL_REMOVE) {
        http.loop_.unwatch(fd);
        return 0;
    }
    http.loop_.watch(fd,
                     what == CURL_POLL_IN || what == CURL_POLL_INOUT,
                     what == CURL_POLL_OUT || what == CURL_POLL_INOUT,
                     [&http, fd](Loop::Ready ready) {
                         http.act(fd,
                                  (ready.in ? CURL_CSELECT_IN : 0) |
                                      (ready.out ? CURL_CSELECT_OUT : 0) |
                                      (ready.error ? CURL_CSELECT_ERR : 0));
                     });
    return 0;
}

int Http::on_timer(void*, long ms, void* self) {
    // SAFETY: what create() set.
    static_cast<Http*>(self)->set_timer(ms);
    return 0;
}

void Http::set_timer(long ms) {
    loop_.cancel(timer_);
    timer_ = 0;
    if (ms < 0) return;
    timer_ = loop_.after(ms, [this] {
        timer_ = 0;
        act(CURL_SOCKET_TIMEOUT, 0);
    });
}

void Http::act(int fd, int events) {
    int running = 0;
    (void)curl_multi_socket_action(multi_, fd, events, &running);
    collect();
}

void Http::collect() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left))
        if (message->msg == CURLMSG_DONE)
            finish(message->easy_handle, static_cast<int>(message->data.result));
    start_waiting();
}

void Http::finish(void* easy, int result) {
    const auto found = running_.find(easy);
    HF_CHECK(found != running_.end(), "only what runs can end");
    const std::unique_ptr<Exchange> exchange = std::move(found->second);
    running_.erase(found);
    HttpAnswer& answer = exchange->answer;
    long status = 0;
    long connections = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connections);
    connections_made_ += static_cast<std::uint64_t>(connections);
    answer.status = static_cast<int>(status);
    // To libcurl a head that is cut is a head.
    answer.answered = result == CURLE_OK && status >= 200 && exchange->head_complete;
    answer.sent = exchange->begun > 0;
    if (!answer.answered)
        answer.trouble = exchange->error[0] != '\0'
                             ? exchange->error
                             : curl_easy_strerror(static_cast<CURLcode>(result));
    if (result == CURLE_ABORTED_BY_CALLBACK) answer.trouble = "the connection was closed under it";
    if (result == CURLE_OK && !answer.answered) answer.trouble = "the head of the answer is cut";
    curl_multi_remove_handle(multi_, easy);
    idle_.push_back(easy);
    exchange->done(answer);
}

}  // namespace hf::web
