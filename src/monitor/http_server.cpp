#include "monitor/http_server.h"

#include <fmt/format.h>
#include <pthread.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <deque>
#include <exception>
#include <list>
#include <thread>
#include <utility>

#include "core/error.h"

namespace trifold {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

class Connection;

// What all connections of a server share.
struct Service {
  HttpLimits limits;
  HttpAnswer refusal;
  HttpHandler handler;
  std::list<Connection*> open;  // the oldest first
  // Whether an answer is being sent in pieces, and the connections whose requests wait for its end.
  bool streaming = false;
  std::deque<std::shared_ptr<Connection>> waiting;
};

// One connection: reads a request, answers it and closes. Every pending operation holds a reference to it. While it is
// open, it is in the list `open`.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Service& service) : stream_(std::move(socket)), service_(service) {
    service_.open.push_back(this);
  }
  ~Connection() {
    service_.open.remove(this);
    if (streams_) end_turn();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start() {
    parser_.header_limit(service_.limits.header_bytes);
    parser_.body_limit(service_.limits.body_bytes);
    stream_.expires_after(service_.limits.longest);
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) { self->take(error); });
  }

  // Its operations end with an error.
  void close() {
    service_.open.remove(this);
    stream_.close();
  }

 private:
  void take(beast::error_code error) {
    if (!error)
      take_turn();
    else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message)
      refuse(error == http::error::body_limit && service_.limits.body_bytes > 0);
  }

  void refuse(bool large) {
    HttpAnswer refusal = service_.refusal;
    refusal.status = large ? 413 : 400;
    send(std::move(refusal));
  }

  void take_turn() {
    if (service_.streaming)
      service_.waiting.push_back(shared_from_this());
    else
      answer(parser_.get());
  }

  // Lets the requests that waited be answered, in their order. Called when a connection with an answer in pieces is
  // destroyed, however the answer ended.
  void end_turn() {
    service_.streaming = false;
    for (const std::shared_ptr<Connection>& next : std::exchange(service_.waiting, {}))
      asio::post(stream_.get_executor(), [next] {
        if (next->stream_.socket().is_open()) next->take_turn();
      });
  }

  void answer(const http::request<http::string_body>& request) {
    with_body_ = request.method() != http::verb::head;
    const auto path = request.target().substr(0, request.target().find('?'));
    HttpAnswer answer =
        service_.handler({std::string(request.method_string()), std::string(path), request.body()});
    if (answer.more && with_body_) return send_in_pieces(std::move(answer), request.version());
    send(std::move(answer));
  }

  void set_header(const HttpAnswer& answer) {
    response_.result(answer.status);
    response_.version(11);
    response_.keep_alive(false);
    response_.set(http::field::content_type, answer.type);
    if (!answer.allow.empty()) response_.set(http::field::allow, answer.allow);
  }

  // Clients of HTTP/1.0 do not know chunks: for them the body ends with the connection.
  void send_in_pieces(HttpAnswer answer, unsigned version) {
    streams_ = service_.streaming = true;
    set_header(answer);
    response_.set(http::field::cache_control, "no-cache");
    in_chunks_ = version >= 11;
    if (in_chunks_) response_.chunked(true);
    more_ = std::move(answer.more);
    stream_.expires_after(service_.limits.longest);
    http::async_write_header(stream_, serializer_,
                             [self = shared_from_this()](beast::error_code error, size_t) {
                               if (!error) self->send_next_piece();
                             });
  }

  void send_next_piece() {
    std::optional<std::string> piece = more_();
    const auto done = [self = shared_from_this(), last = !piece](beast::error_code error, size_t) {
      if (error) return;
      if (!last) return self->send_next_piece();
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    };
    piece_ = piece.value_or(std::string());
    stream_.expires_after(service_.limits.longest);
    if (!in_chunks_)
      asio::async_write(stream_, asio::buffer(piece_), done);
    else if (piece)
      asio::async_write(stream_, http::make_chunk(asio::buffer(piece_)), done);
    else
      asio::async_write(stream_, http::make_chunk_last(), done);
  }

  void send(HttpAnswer answer) {
    set_header(answer);
    response_.content_length(answer.body.size());
    if (with_body_) response_.body() = std::move(answer.body);
    stream_.expires_after(service_.limits.longest);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code, size_t) {
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    });
  }

  beast::tcp_stream stream_;
  Service& service_;
  beast::flat_buffer buffer_;
  http::request_parser<http::string_body> parser_;
  http::response<http::string_body> response_;
  http::response_serializer<http::string_body> serializer_{response_};
  bool with_body_ = true;
  // Of an answer in pieces.
  bool streams_ = false, in_chunks_ = false;
  std::function<std::optional<std::string>()> more_;
  std::string piece_;
};

}  // namespace

class HttpServer::Listener {
 public:
  Listener(const HttpPlace& place, Service service)
      : service_(std::move(service)), acceptor_(context_), pause_(context_) {
    beast::error_code error;
    const asio::ip::address parsed = asio::ip::make_address(place.address, error);
    if (error)
      bad_input("{} {} is no IP address: give one of this host, such as 127.0.0.1", place.address_option,
                place.address);
    const tcp::endpoint endpoint(parsed, static_cast<uint16_t>(place.port));
    const std::string other_address =
        place.address_option.empty() ? "" : fmt::format(", or another {}", place.address_option);
    const auto attempt = [&](const char* what) {
      if (error)
        bad_input("{0} {1}: {2} on {3} failed: {4}: give another {0}, 0 for a free one{5}", place.port_option,
                  place.port, what, place.address, error.message(), other_address);
    };
    acceptor_.open(endpoint.protocol(), error);
    attempt("opening a socket");
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    attempt("opening a socket");
    acceptor_.bind(endpoint, error);
    attempt("binding");
    acceptor_.listen(static_cast<int>(service_.limits.connections), error);
    attempt("listening");
    accept();
  }
  ~Listener() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
    service_.waiting.clear();
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void start_thread() {
    thread_ = std::thread([this] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the threads that train
      while (!context_.stopped()) work([this] { context_.run(); });
    });
  }

  void serve_until(const std::atomic<int>& signal) {
    constexpr std::chrono::milliseconds kPatience{100};  // until a signal is seen
    while (signal.load() == 0) work([&] { context_.run_for(kPatience); });
    // No new connections; what is being written is written, but idle clients are not waited for long.
    constexpr std::chrono::seconds kLastWrites{1};
    beast::error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    closing_ = true;
    work([&] { context_.run_for(kLastWrites); });
  }

  tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }

 private:
  // An answer for which there is no memory costs its client the connection, not the process.
  template <class Body>
  static void work(Body body) {
    try {
      body();
    } catch (const std::exception&) {
    }
  }

  void accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (closing_) return;
      if (!error) {
        accept();  // first: what follows may throw
        if (service_.open.size() == service_.limits.connections) service_.open.front()->close();
        return std::make_shared<Connection>(std::move(socket), service_)->start();
      }
      // Out of file descriptors, say: trying again at once would use a core.
      pause_.expires_after(std::chrono::seconds(1));
      pause_.async_wait([this](beast::error_code stopped) {
        if (!stopped && !closing_) accept();
      });
    });
  }

  Service service_;  // outlives the context, whose destructor ends the connections
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::thread thread_;
  bool closing_ = false;
};

HttpServer::HttpServer(const HttpPlace& place, const HttpLimits& limits, HttpAnswer refusal,
                       HttpHandler handler)
    : listener_(std::make_unique<Listener>(
          place, Service{limits, std::move(refusal), std::move(handler), {}, false, {}})) {
  const tcp::endpoint at = listener_->endpoint();
  const std::string host = at.address().to_string();
  url_ = fmt::format("http://{}:{}", at.address().is_v6() ? "[" + host + "]" : host, at.port());
}

HttpServer::~HttpServer() = default;

void HttpServer::serve_on_thread() { listener_->start_thread(); }
void HttpServer::serve_until(const std::atomic<int>& signal) { listener_->serve_until(signal); }

}  // namespace trifold
