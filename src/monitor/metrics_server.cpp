#include "monitor/metrics_server.h"

#include <fmt/format.h>
#include <pthread.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <list>
#include <optional>
#include <thread>

#include "core/error.h"

namespace trifold {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr size_t kMostConnections = 16;
constexpr uint32_t kMostBytes = 8 << 10;
constexpr std::chrono::seconds kLongest{5};

class Connection;
using Connections = std::list<Connection*>;  // the oldest first

// One connection: reads a request, answers it and closes. Every pending operation holds a reference to it. While it is
// open, it is in the list `open`.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const MetricsPage& page, Connections& open)
      : stream_(std::move(socket)), page_(page), open_(open) {
    open_.push_back(this);
  }
  ~Connection() { open_.remove(this); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start() {
    parser_.header_limit(kMostBytes);
    parser_.body_limit(0);
    stream_.expires_after(kLongest);  // for the whole connection
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) { self->take(error); });
  }

  // Its operations end with an error.
  void close() {
    open_.remove(this);
    stream_.close();
  }

 private:
  void take(beast::error_code error) {
    if (!error)
      answer(parser_.get());
    else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message)
      send(http::status::bad_request, "the request is not HTTP, or too large: GET /metrics\n");
  }

  void answer(const http::request<http::empty_body>& request) {
    with_body_ = request.method() != http::verb::head;
    if (request.method() != http::verb::get && request.method() != http::verb::head)
      return send(http::status::method_not_allowed, "only GET and HEAD are answered: GET /metrics\n");
    const auto path = request.target().substr(0, request.target().find('?'));
    if (path != "/metrics") return send(http::status::not_found, "the page is /metrics\n");
    send(http::status::ok, page_.text());
  }

  void send(http::status status, std::string text) {
    response_.result(status);
    response_.version(11);
    response_.keep_alive(false);
    response_.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    if (status == http::status::method_not_allowed) response_.set(http::field::allow, "GET, HEAD");
    response_.content_length(text.size());
    if (with_body_) response_.body() = std::move(text);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code, size_t) {
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    });
  }

  beast::tcp_stream stream_;
  const MetricsPage& page_;
  Connections& open_;
  beast::flat_buffer buffer_{kMostBytes};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  bool with_body_ = true;
};

}  // namespace

// Accepts connections on its own thread, which also serves them.
class MetricsServer::Listener {
 public:
  Listener(const std::string& address, int port, const MetricsPage& page)
      : page_(page), acceptor_(context_), pause_(context_) {
    beast::error_code error;
    const asio::ip::address parsed = asio::ip::make_address(address, error);
    if (error)
      bad_input("--metrics-address {} is no IP address: give one of this host, such as 127.0.0.1", address);
    const tcp::endpoint endpoint(parsed, static_cast<uint16_t>(port));
    const auto attempt = [&](const char* what) {
      if (error)
        bad_input(
            "--metrics-port {}: {} on {} failed: {}: give another --metrics-port, 0 for a free one, or another "
            "--metrics-address",
            port, what, address, error.message());
    };
    acceptor_.open(endpoint.protocol(), error);
    attempt("opening a socket");
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    attempt("opening a socket");
    acceptor_.bind(endpoint, error);
    attempt("binding");
    acceptor_.listen(static_cast<int>(kMostConnections), error);
    attempt("listening");
    accept();
    thread_ = std::thread([this] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the threads that train
      serve();
    });
  }
  ~Listener() {
    context_.stop();
    thread_.join();
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }

 private:
  // Until the listener stops. An answer for which there is no memory costs its client the connection, not the run.
  void serve() {
    for (;;) {
      try {
        context_.run();
        return;
      } catch (const std::exception&) {
      }
    }
  }

  void accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (!error) {
        accept();  // first: what follows may throw
        if (open_.size() == kMostConnections) open_.front()->close();
        return std::make_shared<Connection>(std::move(socket), page_, open_)->start();
      }
      // Out of file descriptors, say: trying again at once would use a core.
      pause_.expires_after(std::chrono::seconds(1));
      pause_.async_wait([this](beast::error_code stopped) {
        if (!stopped) accept();
      });
    });
  }

  const MetricsPage& page_;
  Connections open_;  // outlives the context, whose destructor ends the connections
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::thread thread_;
};

MetricsServer::MetricsServer(const std::string& address, int port)
    : listener_(std::make_unique<Listener>(address, port, page_)) {
  const tcp::endpoint at = listener_->endpoint();
  const std::string host = at.address().to_string();
  url_ = fmt::format("http://{}:{}/metrics", at.address().is_v6() ? "[" + host + "]" : host, at.port());
}

MetricsServer::~MetricsServer() = default;

void MetricsServer::write(const RunRecord& record) {
  page_.update(record,
               std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
}

}  // namespace trifold
