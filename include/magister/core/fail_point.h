// Named places where a test can make the program die, stall or fail: MAGISTER_FAIL_POINT=name[@nth][/rank]:action. The
// action is kill, hang, stop, slow, throw or enospc; several entries are separated by commas. An unset variable
// (always, outside tests) costs one load.
#pragma once

namespace magister {

// Performs the action that is set for this name. `kill` raises SIGKILL, `hang` sleeps for ever, `stop` raises SIGSTOP,
// `slow` sleeps 0.1 s every time from the nth on, `throw` throws Error(kInternal). `enospc` returns true: the caller
// then behaves as if the file system had returned ENOSPC.
bool fail_point(const char* name);

}  // namespace magister
