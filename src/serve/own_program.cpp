#include "serve/own_program.h"

#include <semaphore>

namespace magister {
namespace {

constexpr double kProgramSeconds = 30;
constexpr std::size_t kMostProgramOutput = 4 << 20;
constexpr std::ptrdiff_t kProgramsAtOnce = 4;

}  // namespace

ProgramAnswer ask_own_program(const ServeOptions& options, std::vector<std::string> arguments,
                              const std::vector<std::string>& launcher) {
  static std::counting_semaphore<kProgramsAtOnce> places(kProgramsAtOnce);
  struct Place {
    Place() { places.acquire(); }
    ~Place() { places.release(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
  };
  const Place place;
  std::vector<std::string> words = launcher;
  words.push_back(options.program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return ask_program(words, options.root, kProgramSeconds, kMostProgramOutput);
}

}  // namespace magister
