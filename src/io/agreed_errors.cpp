// An error travels as text: its exit code, a space, its message.
#include "magister/io/agreed_errors.h"

#include <charconv>
#include <new>
#include <string>

#include "magister/core/error.h"
#include "magister/core/host_name.h"

namespace magister {

namespace {

// The error of work(), whatever its type: a rank that left with another one would keep the others waiting. Empty: none.
std::string sent_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return fmt::format("{} {}", static_cast<int>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fmt::format("{} the memory is used up on {} (a rank cannot go on); use fewer ranks per node",
                       static_cast<int>(ExitCode::kInternal), host_name());
  } catch (const std::exception& error) {
    return fmt::format("{} {} (the program did not expect it); report it with the command that you gave",
                       static_cast<int>(ExitCode::kInternal), printable(error.what(), 2000));
  }
  return "";
}

void throw_if_sent(const std::string& text) {
  if (text.empty()) return;
  int code = static_cast<int>(ExitCode::kInternal);
  const std::size_t space = text.find(' ');
  std::from_chars(text.data(), text.data() + space, code);
  throw Error(static_cast<ExitCode>(code), text.substr(space + 1));
}

}  // namespace

void run_agreed(const Communicator& world, const std::function<void()>& work) {
  for (const std::string& text : world.all_gather(sent_error(work))) throw_if_sent(text);
}

void run_on_rank_zero(const Communicator& world, const std::function<void()>& work) {
  std::string text;
  if (world.rank() == 0) text = sent_error(work);
  world.wait_for_all();
  world.broadcast(text, 0);
  throw_if_sent(text);
}

}  // namespace magister
