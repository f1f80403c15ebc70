// The open connections of the service. Each has a thread of the HTTP library, so one that sends its request a byte at a
// time, or none at all, takes a thread from all others (the attack is called slow loris). The library bounds the time
// between two bytes, not that of a request.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace magister {

class Connections {
 public:
  // threads: of the library, one for each connection at a time.
  explicit Connections(std::size_t threads) : threads_(threads) {}

  // Called by the server: a request of this peer was read whole; its answer was sent.
  void answers(const std::string& address, int port) { set(address, port, true); }
  void answered(const std::string& address, int port) { set(address, port, false); }

  // Closes connections to the service's port that wait for a request: those that have waited for a minute, and while
  // nearly all threads are taken those that have waited longest, from one second on.
  void close_idle(int service_port);
  // Closes all that wait for a request, and with `answering` the others, too.
  void close_all(int service_port, bool answering);

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    bool answers = false;
    Clock::time_point since;
  };
  struct Open {
    int descriptor = -1;
    std::string peer;
    State state;
  };
  void set(const std::string& address, int port, bool answers);
  // Connections to the port, the longest-waiting first.
  std::vector<Open> open(int service_port);

  const std::size_t threads_;
  std::mutex mutex_;
  std::map<std::string, State> states_;  // by peer
};

}  // namespace magister
