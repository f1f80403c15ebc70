// A reader hands over up to 64 records or 1 MiB at a time, so that switching threads costs little compared with
// parsing.
#include "io/dataset/source_streams.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::size_t kBatchRecords = 64, kBatchBytes = 1 << 20;

struct Abandoned {};  // thrown in a reader that is no longer needed

}  // namespace

struct SourceStreams::Stream {
  std::mutex mutex;
  std::condition_variable changed;
  bool wanted = false;     // the caller waits, so the reader runs
  bool abandoned = false;  // the caller will not return
  bool ended = false;
  std::deque<Record> records;
  std::size_t bytes = 0;
  std::exception_ptr error;
  std::thread thread;

  // Called in the reader's thread.
  void give(Record&& record) {
    bytes += record.text.size() + record.tokens.size() * sizeof(TokenId) + record.key.size();
    records.push_back(std::move(record));
    if (records.size() < kBatchRecords && bytes < kBatchBytes) return;
    std::unique_lock lock(mutex);
    wanted = false;
    changed.notify_all();
    changed.wait(lock, [this] { return wanted || abandoned; });
    if (abandoned) throw Abandoned();
  }

  bool is_abandoned() {
    const std::lock_guard lock(mutex);
    return abandoned;
  }

  void run(const std::function<void()>& read) {
    try {
      read();
    } catch (const Abandoned&) {
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    ended = true;
    wanted = false;
    changed.notify_all();
  }
};

SourceStreams::SourceStreams(std::size_t num_sources, Read read) : read_(std::move(read)) {
  for (std::size_t i = 0; i < num_sources; ++i) streams_.push_back(std::make_unique<Stream>());
}

SourceStreams::~SourceStreams() {
  for (const auto& stream : streams_) {
    {
      const std::lock_guard lock(stream->mutex);
      stream->abandoned = true;
      stream->changed.notify_all();
    }
    if (stream->thread.joinable()) stream->thread.join();
  }
}

bool SourceStreams::next(std::size_t source, const std::function<bool()>& poll, Record& record) {
  Stream& stream = *streams_.at(source);
  if (stream.records.empty() && !stream.ended) {
    std::unique_lock lock(stream.mutex);
    stream.bytes = 0;
    stream.wanted = true;
    stream.changed.notify_all();
    if (!stream.thread.joinable()) {
      stream.thread = std::thread([this, source, &stream] {
        stream.run([&] {
          read_(source, [&](Record&& each) { stream.give(std::move(each)); }, [&] { return stream.is_abandoned(); });
        });
      });
    }
    while (!stream.changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return !stream.wanted; })) {
      if (poll && poll()) return false;
    }
  }
  if (stream.records.empty()) {
    if (stream.error) std::rethrow_exception(stream.error);
    MAGISTER_CHECK(false, ExitCode::kInternal,
                   "source {} of a data set has no further record (its share was counted before); report this", source);
  }
  record = std::move(stream.records.front());
  stream.records.pop_front();
  return true;
}

}  // namespace magister
