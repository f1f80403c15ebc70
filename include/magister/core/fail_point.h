// Named places where a test can make the program die, stall or fail: MAGISTER_FAIL_POINT=name[@nth][/rank]:action with
// action kill | hang | stop | slow | throw | enospc, several separated by commas. Unset (always, outside tests) it costs one load.
#pragma once

namespace magister {

// Reached at the named place. `kill` raises SIGKILL, `hang` sleeps for ever, `stop` raises SIGSTOP, `slow` sleeps a tenth of a
// second every time from the nth on, `throw` throws Error(kInternal),
// `enospc` returns true and the caller behaves as if the file system had said ENOSPC.
bool fail_point(const char* name);

}  // namespace magister
