// Source: proc(5). Files used: self/stat (CPU time), self/statm (resident pages), self/io (bytes of the storage layer),
// stat (the host's CPUs), meminfo, net/dev.
#include "magister/monitor/host.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include "magister/core/file_descriptor.h"

namespace magister {
namespace {

// The file's text, at most 64 KiB; empty if it cannot be read.
std::string kernel_text(const std::string& path) {
  FileDescriptor file;
  file.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!file.is_open()) return text;
  char buffer[16384];
  for (ssize_t n = 0; text.size() < 65536 && (n = ::read(file.number(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

// The number that follows `name` at the beginning of a line.
std::optional<double> number_after(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    unsigned long long value = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), value).ec == std::errc())
      return static_cast<double>(value);
  }
  return std::nullopt;
}

// utime and stime of a process: fields 14 and 15. The name of the program, field 2, may contain spaces and brackets.
std::optional<double> cpu_ticks(const std::string& stat) {
  const std::size_t after_name = stat.rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(after_name + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0;
  return fields >> user >> system ? std::optional(user + system) : std::nullopt;
}

// Bytes received and sent by all interfaces except the loopback.
std::optional<std::pair<double, double>> network_bytes(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  double received = 0, sent = 0;
  bool any = false;
  while (std::getline(lines, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo:") != std::string::npos) continue;
    std::istringstream fields(line.substr(colon + 1));
    double in = 0, out = 0, skipped = 0;
    fields >> in;
    for (int i = 0; i < 7; ++i) fields >> skipped;
    if (!(fields >> out)) continue;
    received += in;
    sent += out;
    any = true;
  }
  return any ? std::optional(std::pair(received, sent)) : std::nullopt;
}

}  // namespace

Readings HostReader::read() {
  Readings out;
  const auto add = [&](const char* name, std::optional<double> value) {
    if (value) out.emplace_back(name, *value);
  };
  if (const auto ticks = cpu_ticks(kernel_text(proc_ + "/self/stat")))
    add("cpu_seconds_total", *ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)));
  std::istringstream pages(kernel_text(proc_ + "/self/statm"));
  double all_pages = 0, resident = 0;
  if (pages >> all_pages >> resident)
    add("resident_memory_bytes", resident * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  const std::string io = kernel_text(proc_ + "/self/io");
  add("read_bytes_total", number_after(io, "read_bytes:"));
  add("written_bytes_total", number_after(io, "write_bytes:"));
  std::istringstream cpus(kernel_text(proc_ + "/stat"));
  std::string word;
  double field = 0, all = 0, idle = 0;
  cpus >> word;
  // user nice system idle iowait irq softirq steal; the guest's times after them are part of user and nice.
  for (int i = 0; i < 8 && cpus >> field; ++i) {
    all += field;
    if (i == 3 || i == 4) idle += field;
  }
  if (all_ > 0 && all > all_) add("host_cpu_ratio", (all - idle - busy_) / (all - all_));
  busy_ = all - idle;
  all_ = all;
  if (const auto kib = number_after(kernel_text(proc_ + "/meminfo"), "MemAvailable:"))
    add("host_memory_available_bytes", *kib * 1024);
  if (const auto bytes = network_bytes(kernel_text(proc_ + "/net/dev"))) {
    add("host_network_receive_bytes_total", bytes->first);
    add("host_network_transmit_bytes_total", bytes->second);
  }
  return out;
}

}  // namespace magister
