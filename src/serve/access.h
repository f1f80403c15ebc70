// Who may do what: bearer tokens, of which a file holds scrypt's hashes, and their rate of requests.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace magister {

enum class Role { kRead, kSubmit };

struct Principal {
  std::string name;
  Role role = Role::kSubmit;
};

// Lines of the file: name role salt hash, the last two in hex. scrypt with N = 2^14, r = 8, p = 1.
class Tokens {
 public:
  // Throws Error(kConfig) naming file and line. Local.
  explicit Tokens(const std::string& path);
  // The principal of a token; no value for an unknown one. A token that was found is remembered by its SHA-256, since
  // scrypt is slow on purpose. Thread-safe.
  std::optional<Principal> find(std::string_view token);
  // The same for a token that was found before; costs no scrypt.
  std::optional<Principal> find_known(std::string_view token);

 private:
  struct Entry {
    Principal principal;
    std::string salt, hash;  // bytes
  };
  std::vector<Entry> entries_;
  std::mutex mutex_;
  std::map<std::string, Principal> found_;
};

// A bucket of requests for each name, filled evenly. Thread-safe.
class RateLimit {
 public:
  explicit RateLimit(int requests_a_minute) : rate_(requests_a_minute / 60.0), most_(requests_a_minute) {}
  // False: the name has none left.
  bool take(const std::string& name);

 private:
  struct Bucket {
    double left = 0;
    std::chrono::steady_clock::time_point when{};
  };
  double rate_, most_;
  std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;
};

// Where there are no tokens, a page of another site in a browser of this machine could ask for jobs. Such requests name
// that site (Origin), or come by a name that the site lets point to this machine (Host). Returns why a request is
// refused; null: it is not.
const char* foreign_request(const std::string& host, const std::string& origin);

}  // namespace magister
