// See failed_together.h.
#include "magister/parallel/failed_together.h"

namespace magister {
namespace {

// Number of polls for the other ranks, a millisecond apart: enough for ranks that read the same bad file at the same
// time, and short against the 5 s in which a job must end. Polls are counted instead of time, because the clock goes on
// while a machine is suspended and no rank can arrive.
constexpr int kPatience = 700;

struct PatienceIsOver {};

}  // namespace

bool all_failed(const Communicator& failed) {
  int looks = 0;
  try {
    failed.wait_for_all([&] {
      if (++looks > kPatience) throw PatienceIsOver{};
    });
  } catch (const PatienceIsOver&) {
    return false;
  }
  return true;
}

}  // namespace magister
