// An error travels as text: its exit code, a space, its message.
#include "magister/io/agreed_errors.h"

#include <charconv>
#include <new>
#include <string>

#include "magister/core/error.h"
#include "magister/core/host_name.h"

namespace magister {

void run_agreed(const Communicator& world, const std::function<void()>& work) {
  std::string fault;
  try {
    work();
  } catch (const Error& error) {
    fault = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    fault = fmt::format("{} the memory is used up on {} (a rank cannot go on); use fewer ranks per node",
                        static_cast<int>(ExitCode::kInternal), host_name());
  } catch (const std::exception& error) {
    fault = fmt::format("{} {}", static_cast<int>(ExitCode::kInternal), printable(error.what()));
  }
  for (const std::string& text : world.all_gather(fault)) {
    if (text.empty()) continue;
    int code = static_cast<int>(ExitCode::kInternal);
    const std::size_t space = text.find(' ');
    std::from_chars(text.data(), text.data() + space, code);
    throw Error(static_cast<ExitCode>(code), text.substr(space + 1));
  }
}

}  // namespace magister
