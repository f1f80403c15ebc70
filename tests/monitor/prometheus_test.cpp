// The text that Prometheus reads, and the endpoint that serves it.
#include "magister/monitor/prometheus.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"

namespace magister {
namespace {

std::vector<nlohmann::json> two_ranks() {
  return {
      nlohmann::json::parse(R"({"rank": 0, "host": "n\"1", "time": 1700000000.5, "values": {"cpu_seconds_total": 12.5},
             "gpus": [{"index": 0, "uuid": "GPU-1", "values": {"power_watts": 412.5}}],
             "progress": {"task": "teacher", "units_done": 4, "rank_rates": [{"rank": 1, "tokens_per_second": 80}]}})"),
      nlohmann::json::parse(R"({"rank": 1, "host": "n2", "time": 1700000001, "values": {"cpu_seconds_total": 13},
             "gpus": [{"index": 0, "uuid": "GPU-2", "values": {"power_watts": 100}}]})")};
}

TEST(Prometheus, Text) {
  const std::string text = prometheus_text("my run", two_ranks());
  for (const char* const part :
       {"# HELP magister_gpu_power_watts power that the board draws\n# TYPE magister_gpu_power_watts gauge\n"
        "magister_gpu_power_watts{run=\"my run\",rank=\"0\",host=\"n\\\"1\",gpu=\"0\",uuid=\"GPU-1\"} 412.5\n"
        "magister_gpu_power_watts{run=\"my run\",rank=\"1\",host=\"n2\",gpu=\"0\",uuid=\"GPU-2\"} 100\n",
        "# TYPE magister_rank_cpu_seconds_total counter\n",
        "magister_rank_sample_timestamp_seconds{run=\"my run\",rank=\"0\",host=\"n\\\"1\"} 1700000000.5\n",
        "magister_rank_tokens_per_second{run=\"my run\",rank=\"1\",task=\"teacher\"} 80\n",
        "magister_task_units_done{run=\"my run\",task=\"teacher\"} 4\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "in\n" << text;
  }
  EXPECT_EQ(text.find("magister_gpu_temperature"), std::string::npos) << "a metric without values has no head";
  const auto names = prometheus_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "magister_gpu_power_watts"), names.end());
}

TEST(Prometheus, DamagedStatesAreNoReasonToFail) {
  EXPECT_NO_THROW(prometheus_text(
      "x", std::vector<nlohmann::json>{
               nlohmann::json::parse(R"({"rank": "a", "values": 3, "gpus": [1, {"values": []}], "progress": {}})")}));
}

std::string said_to(int port, const std::string& request) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.number(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return "no connection";
  ::send(socket.number(), request.data(), request.size(), MSG_NOSIGNAL);
  ::shutdown(socket.number(), SHUT_WR);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::recv(socket.number(), buffer, sizeof buffer, 0)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

TEST(Prometheus, Endpoint) {
  const MetricsEndpoint endpoint("127.0.0.1:0", [] { return prometheus_text("r", two_ranks()); });
  const std::string page = said_to(endpoint.port(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"))
      << page;
  EXPECT_NE(page.find("magister_task_units_done"), std::string::npos);
  EXPECT_TRUE(said_to(endpoint.port(), "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(said_to(endpoint.port(), "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(said_to(endpoint.port(), "nonsense").starts_with("HTTP/1.1 400"));
  said_to(endpoint.port(), std::string(100'000, 'x'));  // its answer may be lost with the rest of the request
  EXPECT_TRUE(said_to(endpoint.port(), "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_THROW(MetricsEndpoint(fmt::format("127.0.0.1:{}", endpoint.port()), nullptr), Error) << "in use";
}

TEST(Prometheus, Addresses) {
  for (const char* const wrong : {"9400", "localhost", ":9400", "127.0.0.1:", "127.0.0.1:http", "example.org:80"})
    EXPECT_THROW(MetricsEndpoint(wrong, nullptr), Error) << wrong;
}

}  // namespace
}  // namespace magister
