// The library hands out no sockets; the process's own list of descriptors has them.
#include "serve/connections.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace magister {
namespace {

constexpr std::size_t kSpareThreads = 16;
constexpr auto kLongest = std::chrono::seconds(60), kLongestOfMany = std::chrono::seconds(1);

std::string name_of_peer(const std::string& address, int port) { return fmt::format("{} {}", address, port); }

int port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

// As the library writes a peer's address; empty unless the descriptor is a connection to the service.
std::string peer_of(int descriptor, int service_port) {
  sockaddr_storage own{}, peer{};
  socklen_t size = sizeof own;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) != 0 || port_of(own) != service_port) return "";
  size = sizeof peer;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  char text[NI_MAXHOST];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&peer), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return name_of_peer(text, port_of(peer));
}

// Ends it for the thread that reads or writes it, which then closes it.
void end(int descriptor, const std::string& peer, int service_port) {
  if (peer_of(descriptor, service_port) == peer) shutdown(descriptor, SHUT_RDWR);
}

}  // namespace

void Connections::set(const std::string& address, int port, bool answers) {
  const std::lock_guard lock(mutex_);
  states_[name_of_peer(address, port)] = {answers, Clock::now()};
}

std::vector<Connections::Open> Connections::open(int service_port) {
  std::vector<Open> all;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    Open one;
    std::from_chars(name.data(), name.data() + name.size(), one.descriptor);
    one.peer = peer_of(one.descriptor, service_port);
    if (!one.peer.empty()) all.push_back(std::move(one));
  }
  const std::lock_guard lock(mutex_);
  std::map<std::string, State> known;
  for (Open& one : all) {
    one.state = states_.try_emplace(one.peer, State{false, Clock::now()}).first->second;
    known.emplace(one.peer, one.state);
  }
  // A connection may have been opened since the list was read.
  for (const auto& [peer, state] : states_)
    if (Clock::now() - state.since < kLongestOfMany) known.emplace(peer, state);
  states_ = std::move(known);
  std::sort(all.begin(), all.end(), [](const Open& a, const Open& b) { return a.state.since < b.state.since; });
  return all;
}

void Connections::close_idle(int service_port) {
  const std::vector<Open> all = open(service_port);
  const std::size_t most = threads_ - std::min(threads_, kSpareThreads);
  std::size_t too_many = all.size() - std::min(all.size(), most);
  for (const Open& one : all) {
    if (one.state.answers) continue;
    const auto waited = Clock::now() - one.state.since;
    if (waited < kLongest && (too_many == 0 || waited < kLongestOfMany)) continue;
    end(one.descriptor, one.peer, service_port);
    too_many -= std::min<std::size_t>(too_many, 1);
  }
}

void Connections::close_all(int service_port, bool answering) {
  for (const Open& one : open(service_port))
    if (answering || !one.state.answers) end(one.descriptor, one.peer, service_port);
}

}  // namespace magister
