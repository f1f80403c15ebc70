// A thread that polls a listening socket and a pipe that ends it. A client has two seconds for its request and its
// answer, so that a slow one cannot keep others away for longer. Source: RFC 9112.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"
#include "magister/monitor/prometheus.h"

namespace magister {
namespace {

constexpr std::size_t kMostRequestBytes = 8192;
constexpr int kMostQueued = 8;
constexpr std::chrono::milliseconds kPatienceOfEndpoint{2000};
using EndpointClock = std::chrono::steady_clock;

// Waits until the socket can be read or written; false when the time is over.
bool wait_until_ready(int socket, short events, EndpointClock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - EndpointClock::now()).count();
  pollfd one{socket, events, 0};
  return left > 0 && ::poll(&one, 1, static_cast<int>(left)) > 0;
}

std::string request_of(int socket, EndpointClock::time_point deadline) {
  std::string request;
  char buffer[1024];
  while (request.size() < kMostRequestBytes && request.find("\r\n\r\n") == std::string::npos) {
    if (!wait_until_ready(socket, POLLIN, deadline)) break;
    const ssize_t n = ::recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) break;
    request.append(buffer, static_cast<std::size_t>(n));
  }
  return request;
}

std::string response(const char* status, const char* type, const std::string& body, bool with_body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status,
                     type, body.size(), with_body ? body : std::string());
}

}  // namespace

struct MetricsEndpoint::Server {
  FileDescriptor listening, wake_read, wake_write;
  std::function<std::string()> text;
  int port = 0;
  std::thread thread;

  void listen_at(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
    if (colon == std::string::npos || host.empty() || colon + 1 == address.size() ||
        ::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0) {
      fail(ExitCode::kUsage,
           "{} is no address to serve metrics at (a number of a host and a port are expected); write 127.0.0.1:9400, "
           "or a path that ends in .prom for the textfile collector of node_exporter",
           printable(address, 80));
    }
    const int one = 1;
    listening.reset(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::setsockopt(listening.number(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const bool bound = ::bind(listening.number(), found->ai_addr, found->ai_addrlen) == 0 &&
                       ::listen(listening.number(), kMostQueued) == 0;
    const int error = errno;
    ::freeaddrinfo(found);
    MAGISTER_CHECK(bound, ExitCode::kInputOutput,
                   "{}: metrics cannot be served there: {} (Prometheus would see nothing of the run); choose another "
                   "port",
                   printable(address, 80), std::strerror(error));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    ::getsockname(listening.number(), reinterpret_cast<sockaddr*>(&own), &size);
    port = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&own)->sin_port);
  }

  std::string answer(const std::string& request) const {
    const std::string line = request.substr(0, request.find("\r\n"));
    const bool get = line.starts_with("GET "), head = line.starts_with("HEAD ");
    constexpr const char* kPlain = "text/plain; charset=utf-8";
    if (request.find("\r\n\r\n") == std::string::npos) return response("400 Bad Request", kPlain, "", false);
    if (!get && !head) return response("405 Method Not Allowed", kPlain, "only GET /metrics is served\n", true);
    const std::string path = line.substr(line.find(' ') + 1);
    if (!path.starts_with("/metrics ") && !path.starts_with("/metrics?"))
      return response("404 Not Found", kPlain, "only /metrics is served\n", get);
    try {
      return response("200 OK", "text/plain; version=0.0.4; charset=utf-8", text(), get);
    } catch (const std::exception& error) {
      return response("500 Internal Server Error", kPlain, error.what(), get);
    }
  }

  void serve(int socket) const {
    const auto deadline = EndpointClock::now() + kPatienceOfEndpoint;
    const std::string out = answer(request_of(socket, deadline));
    for (std::size_t sent = 0; sent < out.size();) {
      if (!wait_until_ready(socket, POLLOUT, deadline)) return;
      const ssize_t n = ::send(socket, out.data() + sent, out.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }

  void run() const {
    while (true) {
      pollfd both[2] = {{wake_read.number(), POLLIN, 0}, {listening.number(), POLLIN, 0}};
      if (::poll(both, 2, -1) < 0 && errno != EINTR) return;
      if (both[0].revents != 0) return;
      if (both[1].revents == 0) continue;
      const FileDescriptor client(::accept4(listening.number(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.is_open()) serve(client.number());
    }
  }
};

MetricsEndpoint::MetricsEndpoint(const std::string& address, std::function<std::string()> text)
    : server_(std::make_unique<Server>()) {
  server_->text = std::move(text);
  server_->listen_at(address);
  int ends[2] = {-1, -1};
  MAGISTER_CHECK(
      ::pipe2(ends, O_CLOEXEC) == 0, ExitCode::kInputOutput,
      "a pipe cannot be made: {} (the endpoint of metrics could not be ended); raise the limit of open files",
      std::strerror(errno));
  server_->wake_read.reset(ends[0]);
  server_->wake_write.reset(ends[1]);
  server_->thread = std::thread([server = server_.get()] { server->run(); });
}

MetricsEndpoint::~MetricsEndpoint() {
  server_->wake_write.reset();  // the other end becomes readable
  server_->thread.join();
}

int MetricsEndpoint::port() const { return server_->port; }

}  // namespace magister
