// MetricsServer answers scrapers of Prometheus: GET /metrics over HTTP/1.1, from one thread of its own, with the newest
// numbers of a run (monitor/metrics_page.h). It is a sink of records; writing one never waits for a client.
//
// Clients are bounded (monitor/http_server.h): a request has at most 8 KiB and no body, and is read within 5 seconds; if
// 16 connections are open, the oldest is closed for a new one.
#pragma once

#include <string>

#include "monitor/http_server.h"
#include "monitor/metrics_page.h"

namespace trifold {

class MetricsServer final : public RecordSink {
 public:
  // Listens at `address`, an IP address, and `port`; 0: any free port. BadInput if that is not possible.
  MetricsServer(const std::string& address, int port);

  void write(const RunRecord& record) override;
  // "http://127.0.0.1:9400/metrics"
  const std::string& url() const { return url_; }

 private:
  HttpAnswer answer(const HttpRequest& request) const;

  MetricsPage page_;
  HttpServer server_;  // after the page, which its thread reads
  std::string url_;
};

}  // namespace trifold
