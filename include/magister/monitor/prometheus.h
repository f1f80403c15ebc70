// The measured quantities in the text format of Prometheus (version 0.0.4), and an endpoint that serves them.
// Names: magister_rank_*, magister_gpu_*, magister_task_* with the names of metrics.h.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace magister {

// All samples of one metric follow its HELP and TYPE. states: of ranks, as read_rank_states() gives them. Labels: run,
// rank and host; of a GPU also gpu (its index) and uuid; of a task its name instead of the rank's.
std::string prometheus_text(const std::string& run, std::span<const nlohmann::json> states);

// The names that prometheus_text() may use.
std::vector<std::string> prometheus_names();

// An HTTP/1.1 server of one page, GET /metrics, in a thread of its own. It answers one request after the other and
// closes each connection, as Prometheus asks every 15 s or so.
class MetricsEndpoint {
 public:
  // address: "127.0.0.1:9400" or "[::1]:9400"; port 0: any free one. Throws Error(kUsage) for another form and
  // Error(kInputOutput) for an address that cannot be bound. text: the page, made for each request.
  MetricsEndpoint(const std::string& address, std::function<std::string()> text);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;
  int port() const;

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace magister
