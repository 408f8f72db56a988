#include "monitor/metrics_server.h"

#include <chrono>

namespace trifold {

namespace {

HttpAnswer text_answer(unsigned status, std::string text) {
  return {status, "text/plain; version=0.0.4; charset=utf-8", std::move(text),
          status == 405 ? "GET, HEAD" : ""};
}

}  // namespace

MetricsServer::MetricsServer(const std::string& address, int port)
    : server_({address, port, "--metrics-address", "--metrics-port"}, {},
              text_answer(400, "the request is not HTTP, or too large: GET /metrics\n"),
              [this](const HttpRequest& request) { return answer(request); }),
      url_(server_.url() + "/metrics") {
  server_.serve_on_thread();
}

HttpAnswer MetricsServer::answer(const HttpRequest& request) const {
  if (request.method != "GET" && request.method != "HEAD")
    return text_answer(405, "only GET and HEAD are answered: GET /metrics\n");
  if (request.path != "/metrics") return text_answer(404, "the page is /metrics\n");
  return text_answer(200, page_.text());
}

void MetricsServer::write(const RunRecord& record) {
  page_.update(record,
               std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
}

}  // namespace trifold
