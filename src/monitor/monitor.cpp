#include "monitor/monitor.h"

#include "monitor/event_folder.h"
#include "monitor/json_log.h"
#include "monitor/metrics_server.h"

namespace trifold {

Monitor::Monitor(const LogConfig& log) {
  if (log.log_json) sinks_.push_back(std::make_unique<JsonLog>(*log.log_json));
  if (log.tensorboard_dir) sinks_.push_back(open_event_folder(*log.tensorboard_dir));
  if (!log.metrics_port) return;
  auto server = std::make_unique<MetricsServer>(log.metrics_address, *log.metrics_port);
  metrics_url_ = server->url();
  sinks_.push_back(std::move(server));
}

}  // namespace trifold
