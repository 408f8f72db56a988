// MetricsServer answers scrapers of Prometheus: GET /metrics over HTTP/1.1, from one thread of its own, with the newest
// numbers of a run (monitor/metrics_page.h). It is a sink of records; writing one never waits for a client.
//
// Clients are bounded: a request has at most 8 KiB and no body, a connection lasts at most 5 seconds and carries one
// request, and if 16 are open, the oldest is closed for a new one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "monitor/metrics_page.h"

namespace trifold {

class MetricsServer final : public RecordSink {
 public:
  // Listens at `address`, an IP address, and `port`; 0: any free port. BadInput if that is not possible.
  MetricsServer(const std::string& address, int port);
  // Stops; connections are cut off.
  ~MetricsServer() override;

  void write(const RunRecord& record) override;
  // "http://127.0.0.1:9400/metrics"
  const std::string& url() const { return url_; }

 private:
  class Listener;

  MetricsPage page_;
  std::string url_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace trifold
