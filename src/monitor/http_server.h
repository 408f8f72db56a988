// HttpServer answers requests over HTTP/1.1 from one thread, one after the other. A connection carries one request. An
// answer may be sent in pieces while it is computed; requests that arrive meanwhile wait.
//
// Clients are bounded: the bytes of a request, the time that reading it and writing the answer may each take, and the
// open connections; if there are more, the oldest is closed for a new one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace trifold {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without a query
  std::string body;
};

struct HttpAnswer {
  unsigned status = 200;
  std::string type;   // Content-Type
  std::string body;   // not sent to HEAD
  std::string allow;  // with status 405: the methods of the path
  // The next piece of the body, which then consists of pieces and not of `body`; none at its end. If it throws, the client
  // loses its connection.
  std::function<std::optional<std::string>()> more = {};
};

// Gives the answer to a request. If it throws, the client loses its connection.
using HttpHandler = std::function<HttpAnswer(const HttpRequest&)>;

struct HttpPlace {
  std::string address;  // an IP address
  int port = 0;         // 0: any free port
  // The options that give them, for messages. An empty address option: the address cannot be chosen.
  std::string address_option, port_option;
};

struct HttpLimits {
  size_t connections = 16;
  uint32_t header_bytes = 8 << 10;
  uint64_t body_bytes = 0;  // 0: a request has no body
  std::chrono::seconds longest{5};
};

class HttpServer {
 public:
  // Listens. `refusal` is the answer to what is no request of HTTP, or too large: status 400, or 413 for a body that is
  // too large where requests have bodies. BadInput if it is not possible to listen there.
  HttpServer(const HttpPlace& place, const HttpLimits& limits, HttpAnswer refusal, HttpHandler handler);
  // Stops; connections are cut off.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Answers on a thread of its own, which blocks all signals, until this object is destroyed.
  void serve_on_thread();
  // Answers on the calling thread until `signal` is not 0 and the answer being computed then has been sent.
  void serve_until(const std::atomic<int>& signal);

  // "http://127.0.0.1:9400", to which a path is added.
  const std::string& url() const { return url_; }

 private:
  class Listener;

  std::unique_ptr<Listener> listener_;
  std::string url_;
};

}  // namespace trifold
