// Signals that ask a run to stop: SIGINT, SIGTERM, SIGUSR1 as batch systems send it before they end a job,
// and SIGHUP when the terminal goes away, unless it is ignored (nohup).
#pragma once

#include <atomic>

namespace trifold::launch {

// The number of the signal that came first, 0 while none has. From now on the first signal is kept here, so
// that the run can stop after its step, and the second ends the process at once. Also makes a file that may
// not grow, and a pipe or terminal that nobody reads any more, an error of the write, and not the end of the
// process.
const std::atomic<int>& catch_signals();

}  // namespace trifold::launch
